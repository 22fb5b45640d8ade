"""The classic group coordinator: membership, rebalances and committed offsets of consumer groups.

Reading order: ``states.py`` (the state machine), ``member.py`` and ``group.py`` (what a group is),
``rebalance.py`` (its life between generations), ``membership.py`` (join, sync, heartbeat, leave),
``offsets.py`` and ``commits.py`` (committed offsets), ``records.py`` and ``machine.py`` (their log),
``coordinator.py`` (what the handlers call).
"""
