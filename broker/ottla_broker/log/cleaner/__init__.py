"""Compaction: keeps the last record of every key of a log whose cleanup policy is ``compact``.

Reading order: ``schedule`` (which log, from where to where), ``offset_map`` (the last offset of every key),
``filter`` (which records of a batch stay), ``work`` (the byte work of one cleaning), ``service`` (the cleaner itself).

To change

- which records compaction keeps, when a tombstone goes: ``log/cleaner/filter.py`` (the rules); the drop:
  ``log/cleaner/offset_map.py``, compiled in ``ottla_protocol/records/_cleaning.c``
- which logs are compacted, and when: ``log/cleaner/schedule.py``
"""

from ottla_broker.log.cleaner.service import CleanerSettings, LogCleaner

__all__ = ["CleanerSettings", "LogCleaner"]
