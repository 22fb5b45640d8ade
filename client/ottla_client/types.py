"""The plain values that the client takes and gives: records, offsets, and what a cluster looks like."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Generic, NamedTuple, TypeVar

if TYPE_CHECKING:
    from ottla_protocol.records.record import Headers

K = TypeVar("K")
V = TypeVar("V")


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """What a group commits for a partition: the offset of the next record to read, and a note of its own.

    ``leader_epoch`` is the epoch of the last record read, or None where it isn't known (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class OffsetAndTimestamp(NamedTuple):
    """The first offset whose record is as late as a timestamp, and that record's own, in milliseconds."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class OffsetSpec(IntEnum):
    """Offsets to look up other than by a time; the numbers are the protocol's."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp (KIP-734, from Kafka 3.0 on)."""


class ListedOffset(NamedTuple):
    """An offset that was looked up; -1 where there is none, as for a time after the last record."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class TimestampType(IntEnum):
    """Who set a record's timestamp; the numbers are the bit in the batch."""

    CREATE_TIME = 0
    LOG_APPEND_TIME = 1


class RecordMetadata(NamedTuple):
    """Where a record that was sent has gone.

    ``offset`` is -1 where the broker didn't say: with ``acks=0``, and for a duplicate of a batch so old that its
    offset is forgotten. ``timestamp`` is in milliseconds, the broker's if the topic is set to LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record as a consumer hands it out. ``timestamp`` is in milliseconds; ``value`` None is a tombstone."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker, by the address that it advertises."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """One partition: who leads it (None: nobody), in which epoch, and where its replicas are.

    ``error`` is the code that the broker answered for it, 0 if none.
    """

    partition: int
    leader: int | None
    leader_epoch: int | None = None
    replicas: tuple[int, ...] = ()
    isr: tuple[int, ...] = ()
    offline_replicas: tuple[int, ...] = ()
    error: int = 0


@dataclass(frozen=True, slots=True)
class TopicMetadata:
    """One topic. ``id`` is None with brokers that don't have topic ids yet. ``error`` as in PartitionMetadata."""

    name: str
    id: bytes | None
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    is_internal: bool = False
    error: int = 0
