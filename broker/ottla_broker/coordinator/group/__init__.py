"""The classic group coordinator: membership, rebalances and committed offsets of consumer groups.

Reading order, in which each module imports only earlier ones: ``states.py`` (the state machine), ``offsets.py``,
``member.py`` and ``group.py`` (what a group is), ``records.py`` (its log), ``rebalance.py`` (from one generation to the
next), ``group_shard.py`` (loading), ``membership.py`` (join, sync, heartbeat, leave), ``commits.py`` (committed
offsets), ``coordinator.py`` (the handlers call it).
"""
