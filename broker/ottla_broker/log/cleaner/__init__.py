"""Compaction: keeps the last record of every key of a log whose cleanup policy is ``compact``.

Reading order: ``schedule`` (which log, from where to where), ``offset_map`` (the last offset of every key),
``filter`` (which records of a batch stay), ``work`` (the byte work of one cleaning), ``service`` (the cleaner itself).
"""

from ottla_broker.log.cleaner.service import CleanerSettings, LogCleaner

__all__ = ["CleanerSettings", "LogCleaner"]
