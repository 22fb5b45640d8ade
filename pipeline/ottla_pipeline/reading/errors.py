"""Errors of reading a range: one line each, with the partition, the offsets and what to do.

ReadError          the range can't be read now: no broker, no leader, or unusable segment files
  CorruptData      a record batch breaks the format, or its checksum doesn't match
  DataLoss         records are gone: since the range was planned, or since the query last read; ``kind`` says how
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from ottla_client import TopicPartition

LossKind: TypeAlias = Literal["retention", "deletion", "truncation", "recreated"]
"""retention: the log's start has passed them (DeleteRecords too); deletion: the topic or partition is gone;
truncation: the log ends before them, or an unclean election replaced them; recreated: the topic was deleted and created
again.
"""

_HOW: Final[dict[LossKind, str]] = {
    "retention": "the log starts behind them: retention or DeleteRecords took them",
    "deletion": "the topic was deleted",
    "truncation": "the log was cut off before them, as after an unclean leader election",
    "recreated": "the topic was deleted and made again, and is another one by the same name",
}


class ReadError(Exception):
    """A range, or what is left of it, that can't be read."""


class CorruptData(ReadError):
    """A record batch can't be decoded: ``offset`` is its first wanted one, ``reason`` what is wrong."""

    def __init__(self, topic: str, partition: int, offset: int, reason: str) -> None:
        super().__init__(
            f"{topic}-{partition}: the record batch at offset {offset} can't be read: {reason}; set"
            " onCorrupt=deadletter to set such batches aside, or start after it"
        )
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.topic, self.partition, self.offset, self.reason)


class DataLoss(ReadError):
    """Records that were to be read are gone, and ``failOnDataLoss`` is true.

    The attributes name the first loss: offsets ``first`` to ``last`` (inclusive) of ``topic_partition``; a ``last`` of
    None means all from ``first`` on.
    """

    def __init__(
        self, message: str, kind: LossKind, topic_partition: TopicPartition, first: int, last: int | None
    ) -> None:
        super().__init__(message)
        self.kind = kind
        self.topic_partition = topic_partition
        self.first = first
        self.last = last

    @classmethod
    def while_reading(
        cls, kind: LossKind, topic_partition: TopicPartition, first: int, last: int
    ) -> DataLoss:
        """Offsets ``first`` to ``last`` (inclusive) went after the range was planned."""
        message = (
            f"{topic_partition}: offsets {first} to {last} are lost ({kind}): {_HOW[kind]}; set failOnDataLoss=false"
            " to go on without them"
        )
        return cls(message, kind, topic_partition, first, last)

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (str(self), self.kind, self.topic_partition, self.first, self.last)


@dataclass(frozen=True)
class CorruptBatch:
    """A batch that was set aside (``on_corrupt="deadletter"``): offsets ``first`` to ``last``, and its bytes."""

    topic: str
    partition: int
    first: int
    last: int
    reason: str
    data: bytes
