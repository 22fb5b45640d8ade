"""Share groups' records: who has acquired them, and what is done with (KIP-932).

Reading order: ``states.py`` (a record's states, as a table), ``in_flight.py`` (the records in flight of one share
partition, a pure state machine), ``state_batches.py`` (what of it is persisted), ``state_shard.py`` and
``state_coordinator.py`` (the share coordinator and its topic), ``persister.py`` (how leaders reach it),
``share_partition.py`` (one group's view of one partition, at its leader), ``share_partitions.py`` (all of a broker's),
``sessions.py`` (share sessions). Membership is in ``coordinator/group/share``.
"""
