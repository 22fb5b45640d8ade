"""Records that are gone before they could be read: which, how it shows, and whether that is an error.

Comparing the offset that was read up to with the log shows how: the log starts behind the offset (retention), the
partition doesn't exist (deletion), the topic has another id (recreated), or the log ends before the offset (truncation:
a leader without the records was elected).
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from ottla_client import TopicPartition
from ottla_pipeline.reading.errors import DataLoss, LossKind

log = logging.getLogger("ottla_pipeline")


@dataclass(frozen=True)
class Loss:
    """Offsets ``first`` to ``last`` (inclusive) of a partition; a ``last`` of None means an unknown number."""

    kind: LossKind
    partition: TopicPartition
    first: int
    last: int | None
    now: str

    def __str__(self) -> str:
        if self.last is None:
            what = f"offsets from {self.first} on"
        elif self.last == self.first:
            what = f"offset {self.first}"
        else:
            what = f"offsets {self.first} to {self.last}"
        return f"{self.partition}: {what} ({self.kind}: {self.now})"


def retention(partition: TopicPartition, wanted: int, earliest: int, end: int | None = None) -> Loss:
    """``wanted`` was to be read next, up to ``end``; the log starts at ``earliest``, behind it."""
    last = earliest - 1 if end is None else min(earliest, end) - 1
    now = f"the log starts at {earliest} now; retention or DeleteRecords took them"
    return Loss("retention", partition, wanted, last, now)


def truncation(partition: TopicPartition, wanted: int, latest: int) -> Loss:
    """Records up to ``wanted`` were read; the log ends at ``latest``, before it."""
    now = f"the log ends at {latest} now, before them; a leader without them was elected"
    return Loss("truncation", partition, latest, wanted - 1, now)


def deletion(partition: TopicPartition, wanted: int, end: int | None) -> Loss:
    """``wanted`` was to be read next, up to ``end`` if that is known; the partition doesn't exist."""
    last = None if end is None else end - 1
    return Loss("deletion", partition, wanted, last, "the topic was deleted")


def recreated(partition: TopicPartition, wanted: int, end: int | None) -> Loss:
    """As ``deletion``; another topic has the same name now."""
    last = None if end is None else end - 1
    now = "the topic was deleted and made again, and is another one"
    return Loss("recreated", partition, wanted, last, now)


def report(losses: Collection[Loss], fail: bool) -> None:
    """Raise DataLoss if there are any and ``fail``; otherwise log them."""
    if not losses:
        return
    every = [str(loss) for loss in losses]
    text = "; ".join(every[:5]) + (f"; and {len(every) - 5} more" if len(every) > 5 else "")
    if fail:
        first = next(iter(losses))
        raise DataLoss(
            f"records were lost before they were read: {text}. Set failOnDataLoss=false to go on without them",
            first.kind,
            first.partition,
            first.first,
            first.last,
        )
    log.warning("records were lost before they were read, and failOnDataLoss is false: %s", text)


def other_topics(before: Mapping[str, str], now: Mapping[str, str]) -> set[str]:
    """Topics whose id has changed, where both ids are known."""
    return {name for name, id in before.items() if id and now.get(name, id) != id}
