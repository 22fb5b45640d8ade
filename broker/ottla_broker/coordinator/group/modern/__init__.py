"""Groups of the consumer protocol, whose partitions the broker assigns (KIP-848).

Reading order: ``states.py``, ``member.py``, ``reconciliation.py`` (one member's way to its target, as a table),
``assignors.py`` and ``uneven.py`` (pure functions), ``patterns.py``, ``topics.py``, ``records.py`` (the log),
``membership.py`` (the state that the records describe), ``consumer_group.py``, ``change.py`` (one change of a group, as
records), ``rebalance.py`` (topics, target and reconciliation in a change), ``timers.py``, ``writer.py``,
``heartbeats.py`` (members of this protocol), ``classic_members.py`` (members of the classic protocol in such a group),
``conversion.py`` (from one kind of group to the other), ``describe.py``.

To change

- what a member of the consumer protocol (KIP-848) gets, and when: ``coordinator/group/modern/reconciliation.py``
  ``reconcile``; who should have which partitions: ``coordinator/group/modern/assignors.py`` ``ASSIGNORS``; a
  heartbeat: ``coordinator/group/modern/heartbeats.py`` ``Heartbeats``
- when a group changes its protocol: ``coordinator/group/modern/migration.py`` ``Migration``; what becomes of its
  members: ``coordinator/group/modern/conversion.py`` ``upgraded``, ``downgraded``
- which topics match a regular expression (regex): ``coordinator/group/modern/patterns.py`` ``Matcher``
"""
