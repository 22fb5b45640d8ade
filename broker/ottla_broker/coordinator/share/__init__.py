"""Share groups' records: who has acquired them, and what is done with (KIP-932).

Reading order: ``states.py`` (a record's states, as a table), ``in_flight.py`` (the records in flight of one share
partition, a pure state machine), ``state_batches.py`` (what of it is persisted), ``state_shard.py`` and
``state_coordinator.py`` (the share coordinator and its topic), ``persister.py`` (how leaders reach it),
``share_partition.py`` (one group's view of one partition, at its leader), ``share_partitions.py`` (all of a broker's),
``sessions.py`` (share sessions). Membership is in ``coordinator/group/share``.

To change

- which records a share group gets, and when they are delivered again: ``coordinator/share/share_partition.py``
  ``SharePartition``; when a lock times out: ``coordinator/deadlines.py`` ``Deadlines`` →
  ``coordinator/share/share_partition.py`` ``lock_timed_out``; the states of a record: ``coordinator/share/states.py``
  ``NEXT``, ``OUTCOME``; the runs of offsets: ``coordinator/share/in_flight.py`` ``InFlight``
- what a share fetch sends of a log: ``coordinator/share/fetched.py`` ``Fetched``
- which of a share group's records wait for earlier ones with the same key: ``coordinator/share/key_order.py``
  ``KeyOrder``; which keys the records have: ``coordinator/share/key_reader.py`` ``KeyReader``; for a part of a large
  batch: ``coordinator/share/key_window.py`` ``read_window``
- what is kept of a share group's records: ``coordinator/share/state_coordinator.py`` ``ShareStateCoordinator``; its
  records: ``coordinator/share/state_shard.py``; from other brokers: ``cluster/share_state_transport.py``
  ``ShareStateTransport``, ``api_parts/share_state_requests.py`` ``serve``
- what is known of share groups' deliveries: ``coordinator/share/tally.py`` ``DeliveryTally``, shown by
  ``metrics/shares.py`` ``shares_page``; ``ottla cluster doctor`` asks by
  ``ottla_cli/cluster/doctor/broker_pages.py`` ``ask``
"""
