"""Share groups: their members, and which partitions each reads (KIP-932).

Reading order: ``group.py`` (what the records describe), ``records.py`` (the log), ``assignor.py``, ``groups.py`` (the
requests). What becomes of the records that members read is in ``coordinator/share``.

To change

- which partitions a member of a share group reads: ``coordinator/group/share/groups.py`` ``ShareGroups``,
  ``coordinator/group/share/assignor.py`` ``assign``
- what becomes of a share group's state when a topic is deleted: ``coordinator/group/share/deleted_topics.py``
  ``DeletedTopics``
"""
