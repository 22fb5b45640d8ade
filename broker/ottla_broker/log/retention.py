"""Chooses the oldest segments of a log that retention removes: policies, asked in turn.

A policy is a callable that gets a :class:`LogView` and returns how many of its first segments it removes. Each policy
sees the segments that those before it leave. Whatever it returns, nothing at or above the high watermark is removed,
and an empty active segment stays.

The policies here are Kafka's. A user's own take the place of ``retention.bytes`` and ``retention.ms`` for some topics:
``user_retention.py``, docs/retention.md.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Final, Protocol, TypeAlias

from ottla_broker.log.config import LogConfig


class Segment(Protocol):
    """A segment as policies see it. ``size`` is bytes."""

    @property
    def base_offset(self) -> int: ...

    @property
    def size(self) -> int: ...

    def largest_timestamp(self) -> int:
        """The newest record's timestamp in ms, or without any when the file was last written. Raises OSError."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class LogView:
    """One partition's log at a moment.

    Attributes:
        topic, partition: whose log it is.
        segments: what is left of it, oldest first; the last one of the log is still being written to.
        config: the topic's settings in force, such as ``retention_ms`` and ``retention_bytes`` (-1: no limit).
        log_start_offset: DeleteRecords has hidden the records below.
        end_offset: where the log ends.
        high_watermark: the records below are committed.
        now_ms: the broker's clock, in ms since the epoch.
    """

    topic: str
    partition: int
    segments: Sequence[Segment]
    config: LogConfig
    log_start_offset: int
    end_offset: int
    high_watermark: int
    now_ms: int

    @property
    def size(self) -> int:
        """Bytes of all segments."""
        return sum(segment.size for segment in self.segments)

    def without(self, count: int) -> LogView:
        """The view without its first ``count`` segments."""
        return replace(self, segments=self.segments[count:]) if count else self


RetentionPolicy: TypeAlias = Callable[[LogView], int]
"""Returns how many of the first segments of a view to remove."""


def below_log_start(log: LogView) -> int:
    """Segments that DeleteRecords has hidden altogether; they go under every cleanup policy."""
    segments = log.segments
    count = 0
    while count + 1 < len(segments) and segments[count + 1].base_offset <= log.log_start_offset:
        count += 1
    return count


def over_size(log: LogView) -> int:
    """Segments without which the log still has retention.bytes."""
    limit = log.config.retention_bytes
    if limit < 0 or not log.config.delete:
        return 0
    surplus = log.size - limit
    if surplus < 0:
        return 0
    count = 0
    for segment in log.segments:
        surplus -= segment.size
        if surplus < 0:
            break
        count += 1
    return count


def over_age(log: LogView) -> int:
    """Segments whose newest record is older than retention.ms."""
    limit = log.config.retention_ms
    if limit < 0 or not log.config.delete:
        return 0
    count = 0
    while count < len(log.segments) and log.now_ms - log.segments[count].largest_timestamp() > limit:
        count += 1
    return count


Policies: TypeAlias = tuple[tuple[str, RetentionPolicy], ...]
"""Policies with their names for the log of events."""

ALWAYS: Final[Policies] = (("log start offset", below_log_start),)
"""What goes under any policy."""
BUILT_IN: Final[Policies] = (*ALWAYS, ("retention.bytes", over_size), ("retention.ms", over_age))


def removable(log: LogView) -> int:
    """Return the number of the first segments that may be removed at all."""
    segments = log.segments
    for index, segment in enumerate(segments):
        is_last = index + 1 == len(segments)
        end = log.end_offset if is_last else segments[index + 1].base_offset
        if end > log.high_watermark or (is_last and not segment.size):
            return index
    return len(segments)


def expired_segments(log: LogView, policies: Policies = BUILT_IN) -> tuple[int, str]:
    """Return the number of a log's first segments to remove, and by which policies. Raises OSError."""
    most = removable(log)
    count = 0
    reasons = []
    for reason, policy in policies:
        more = min(policy(log.without(count)), most - count)
        if more > 0:
            count += more
            reasons.append(reason)
    return count, ", ".join(reasons)
