"""Which of a log's oldest segments retention removes: policies, each a function, asked in turn.

A policy gets the segments that are left and returns how many of the first ones it removes. Whatever it returns, nothing
at or above the high watermark is removed, and an empty active segment stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from ottla_broker.log.config import LogConfig
    from ottla_broker.log.segment import LogSegment

Policy = Callable[[Sequence["LogSegment"], "LogConfig", int, int], int]
"""Segments, config, log start offset and time in ms; returns a count."""


def below_log_start(
    segments: Sequence[LogSegment], config: LogConfig, log_start_offset: int, now_ms: int
) -> int:
    """Segments that DeleteRecords has hidden altogether; they go under every cleanup policy."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log_start_offset:
        count += 1
    return count


def over_size(segments: Sequence[LogSegment], config: LogConfig, log_start_offset: int, now_ms: int) -> int:
    """Segments without which the log still has retention.bytes."""
    limit = config.retention_bytes
    if limit < 0 or not config.delete:
        return 0
    surplus = sum(segment.size for segment in segments) - limit
    if surplus < 0:
        return 0
    count = 0
    for segment in segments:
        surplus -= segment.size
        if surplus < 0:
            break
        count += 1
    return count


def over_age(segments: Sequence[LogSegment], config: LogConfig, log_start_offset: int, now_ms: int) -> int:
    """Segments whose newest record is older than retention.ms."""
    limit = config.retention_ms
    if limit < 0 or not config.delete:
        return 0
    count = 0
    while count < len(segments) and now_ms - segments[count].largest_timestamp() > limit:
        count += 1
    return count


POLICIES: Final[tuple[tuple[str, Policy], ...]] = (
    ("log start offset", below_log_start),
    ("retention.bytes", over_size),
    ("retention.ms", over_age),
)


def expired_segments(
    segments: Sequence[LogSegment],
    config: LogConfig,
    now_ms: int,
    *,
    log_start_offset: int,
    log_end_offset: int,
    committed_offset: int,
) -> tuple[int, str]:
    """How many of a log's first segments to remove, and by which policies. Raises OSError."""
    deletable = 0
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        upper = log_end_offset if is_last else segments[number + 1].base_offset
        if upper > committed_offset or (is_last and not segment.size):
            break
        deletable += 1
    count = 0
    reasons = []
    for reason, policy in POLICIES:
        more = min(policy(segments[count:], config, log_start_offset, now_ms), deletable - count)
        if more > 0:
            count += more
            reasons.append(reason)
    return count, ", ".join(reasons)
