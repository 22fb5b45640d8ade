"""Chooses the log that is cleaned next, and from where to where.

A log is three stretches::

    log start ── clean ── first dirty offset ── cleanable ── first uncleanable offset ── … ── end

The clean part was compacted before: it has each key once. The first uncleanable offset is the least of the stable
offset, the active segment's base, and the base of the first segment with a record younger than
``min.compaction.lag.ms``, moved down to the base of the segment it lies in. The dirtiest log, by the share of cleanable
bytes in clean plus cleanable bytes, is cleaned first, if the share is above ``min.cleanable.dirty.ratio`` or one of its
records has waited longer than ``max.compaction.lag.ms``. Source: Kafka's LogCleanerManager.

Everything here runs on the loop thread and changes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from ottla_broker.log.log import Log
from ottla_broker.log.segment import LogSegment


class Cleanable(NamedTuple):
    """A log and the stretch of it that may be cleaned now. Sizes are bytes."""

    log: Log
    first_dirty: int
    first_uncleanable: int
    clean_bytes: int
    cleanable_bytes: int
    # Whether a record has waited longer than max.compaction.lag.ms.
    overdue: bool

    @property
    def ratio(self) -> float:
        """The dirty share of the log, 0 to 1."""
        total = self.clean_bytes + self.cleanable_bytes
        return self.cleanable_bytes / total if total else 0.0

    @property
    def is_due(self) -> bool:
        """Whether it should be cleaned now."""
        if not self.cleanable_bytes:
            return False
        return self.overdue or self.ratio > self.log.config.min_cleanable_dirty_ratio


def first_dirty_offset(log: Log, checkpoint: int | None) -> int:
    """Return where the log's dirty part begins, given the checkpoint (None: there is none).

    A checkpoint that doesn't fit the log, because segments were deleted or the log was truncated and grew again, counts
    as the log's start: at worst clean records are cleaned again.
    """
    start = log.log_start_offset
    if checkpoint is None or not start <= checkpoint <= log.log_end_offset:
        return start
    return checkpoint


def cleanable(log: Log, checkpoint: int | None, stable_offset: int, now_ms: int) -> Cleanable:
    """The stretch of ``log`` that may be cleaned, at most up to ``stable_offset``. Raises OSError."""
    config = log.config
    segments = log.segments
    sealed, active = segments[:-1], segments[-1]
    first_dirty = first_dirty_offset(log, checkpoint)
    dirty = segments_between(sealed, first_dirty, active.base_offset)
    limit = min(stable_offset, active.base_offset)
    if config.min_compaction_lag_ms > 0:
        youngest = now_ms - config.min_compaction_lag_ms
        too_young = (each.base_offset for each in dirty if each.largest_timestamp() > youngest)
        limit = min(limit, next(too_young, limit))
    limit = max(first_dirty, limit)
    above = segments_between(sealed, limit, active.base_offset)
    first_uncleanable = above[0].base_offset if above else active.base_offset
    now_cleanable = segments_between(sealed, first_dirty, first_uncleanable)
    clean_below = now_cleanable[0].base_offset if now_cleanable else first_dirty
    return Cleanable(
        log,
        first_dirty,
        first_uncleanable,
        sum(each.size for each in sealed if each.base_offset < clean_below),
        sum(each.size for each in now_cleanable),
        _is_overdue(dirty, now_ms - config.max_compaction_lag_ms),
    )


def _is_overdue(dirty: Sequence[LogSegment], written_before_ms: int) -> bool:
    """Whether a dirty segment's first record is older than ``written_before_ms``."""
    if written_before_ms <= 0:
        return False
    return any(0 < each.first_timestamp < written_before_ms for each in dirty)


def segments_between(segments: Sequence[LogSegment], start: int, end: int) -> list[LogSegment]:
    """The segments that hold offsets in ``[start, end)``, including the one that ``start`` lies in."""
    if start >= end:
        return []
    result = [each for each in segments if start < each.base_offset < end]
    below = [each for each in segments if each.base_offset <= start]
    return [*below[-1:], *result]


def dirtiest(candidates: list[Cleanable]) -> Cleanable | None:
    """The log to clean next; None when none is due."""
    return max((each for each in candidates if each.is_due), key=lambda each: each.ratio, default=None)
