"""Share groups: their members, and which partitions each reads (KIP-932).

Reading order: ``group.py`` (what the records describe), ``records.py`` (the log), ``assignor.py``, ``groups.py`` (the
requests). What becomes of the records that members read is in ``coordinator/share``.
"""
