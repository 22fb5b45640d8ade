"""Landing jobs: topics into Delta Lake, Apache Iceberg or Parquet tables, exactly once.

Reading order: ``settings``, ``ledger`` and ``tables`` (how a table knows what it has), ``parsing``, ``files`` and
``task`` (from a range of offsets to files), ``job_plan``, ``batch_loop``, ``batches`` and ``job`` (from ranges to
commits), ``dead_letter_sink``, ``replaying``, ``compaction``.

To change

- when a landed batch becomes visible: ``landing/batches.py`` ``BatchCommitter`` ``_commit`` →
  ``landing/tables/base.py`` ``Table`` ``commit`` → each format's ``_write``: ``landing/tables/delta.py`` ``_write``,
  ``landing/tables/iceberg.py`` ``_write``, ``landing/tables/parquet.py`` ``_append``, whose log entry says what the
  table has; readers of the folder see its files when ``_move`` has renamed them, the next time that the log is read
- how a record becomes a row: ``landing/parsing/``: fast readers, and an exact one for what they leave
  (``landing/parsing/base.py`` ``Pieces``); what its columns and the table make of it: ``landing/fitting.py``
  ``Fitting``; without a job: ``reading/decoder.py``
- what a table demands of its rows: ``landing/constraints.py`` ``Constraints``; conditions in SQL:
  ``landing/expressions.py`` ``compiled``; why: ``docs/decisions/0032``
- where a dead letter is written: ``landing/task.py``; delivered: ``landing/dead_letter_sink.py``
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .compaction import Compacted as Compacted
    from .compaction import compact as compact
    from .errors import LandingError as LandingError
    from .job import land as land
    from .replaying import Replayed as Replayed
    from .replaying import replay as replay
    from .settings import BatchDone as BatchDone
    from .settings import Landed as Landed
    from .settings import Landing as Landing

_WHERE = {
    "BatchDone": "settings",
    "Compacted": "compaction",
    "Landed": "settings",
    "Landing": "settings",
    "LandingError": "errors",
    "Replayed": "replaying",
    "compact": "compaction",
    "land": "job",
    "replay": "replaying",
}

__all__ = sorted(_WHERE)


def __getattr__(name: str) -> Any:
    """Import a name when it is used: working with a table doesn't need Spark."""
    if name not in _WHERE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"{__name__}.{_WHERE[name]}"), name)
