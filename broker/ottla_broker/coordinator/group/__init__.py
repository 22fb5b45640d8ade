"""Groups on ``__consumer_offsets``: classic ones here, ``modern/`` (KIP-848), and ``share/`` (KIP-932, their members).

Reading order, in which each module imports only earlier ones: ``states.py`` (the state machine), ``offsets.py``,
``member.py`` and ``group.py`` (what a classic group is), ``records.py`` (its log), ``rebalance.py`` (from one
generation to the next), ``group_shard.py`` (loading), ``membership.py`` (join, sync, heartbeat, leave),
``commits.py`` (committed offsets), ``admission.py`` (who may enter), ``coordinator.py`` (the handlers call it).

To change

- when a group rebalances: ``coordinator/group/rebalance.py`` ``Rebalancer``; the table of states:
  ``coordinator/group/states.py``
- when a classic member is dead (session.timeout.ms, max.poll.interval.ms): ``coordinator/group/rebalance.py``
  ``_missed``; the timer: ``coordinator/deadlines.py`` ``Deadlines``
- which commits are accepted, when they expire: ``coordinator/group/commits.py`` ``Commits``
"""
