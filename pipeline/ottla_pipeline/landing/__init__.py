"""Landing jobs: topics into Delta Lake, Apache Iceberg or Parquet tables, exactly once.

Reading order: ``settings``, ``ledger`` and ``tables`` (how a table knows what it has), ``parsing``, ``files`` and
``task`` (from a range of offsets to files), ``job_plan``, ``batch_loop``, ``batches`` and ``job`` (from ranges to
commits), ``dead_letter_sink``, ``replaying``, ``compaction``.
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
