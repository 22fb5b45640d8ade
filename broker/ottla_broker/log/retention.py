"""Which of a log's oldest segments may go: policies, each a function, asked one after the other.

A policy is given the log, the segments that are left, and the time, and answers how many of the first ones it
lets go. Whatever it says, nothing at or behind the high watermark goes, and an empty active segment stays.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from .log import Log
    from .segment import LogSegment

Policy = Callable[["Log", Sequence["LogSegment"], int], int]


def below_log_start(log: Log, segments: Sequence[LogSegment], now_ms: int) -> int:
    """Segments that DeleteRecords has hidden altogether; they go under every cleanup policy."""
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    return count


def over_size(log: Log, segments: Sequence[LogSegment], now_ms: int) -> int:
    """Segments without which the log still has retention.bytes."""
    limit = log.config.retention_bytes
    if limit < 0 or not log.config.delete:
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


def over_age(log: Log, segments: Sequence[LogSegment], now_ms: int) -> int:
    """Segments whose newest record is older than retention.ms."""
    limit = log.config.retention_ms
    if limit < 0 or not log.config.delete:
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
    log: Log, now_ms: int, policies: Sequence[tuple[str, Policy]] = POLICIES
) -> tuple[int, str]:
    """How many of the log's first segments may go, and by which policies. Raises OSError."""
    segments = log.segments
    bound = log.committed_offset()
    deletable = 0
    for number, segment in enumerate(segments):
        is_last = number + 1 == len(segments)
        upper = log.log_end_offset if is_last else segments[number + 1].base_offset
        if upper > bound or (is_last and not segment.size):
            break
        deletable += 1
    count = 0
    reasons = []
    for reason, policy in policies:
        more = min(policy(log, segments[count:], now_ms), deletable - count)
        if more > 0:
            count += more
            reasons.append(reason)
    return count, ", ".join(reasons)
