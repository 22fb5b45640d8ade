"""Values of the client: records, offsets, and the metadata of a cluster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Final, Generic, Literal, NamedTuple, TypeAlias, TypeVar, get_args

if TYPE_CHECKING:
    from ottla_protocol.records.batch import BatchHeader
    from ottla_protocol.records.record import Headers

K = TypeVar("K")
V = TypeVar("V")

IsolationLevel: TypeAlias = Literal["read_uncommitted", "read_committed"]
ISOLATION_LEVELS: tuple[IsolationLevel, ...] = get_args(IsolationLevel)
"""The index of a level is its number in requests."""

COORDINATED: Final = "coordinated"
"""The protocol type of groups of the coordinator designed in 2012, which Ottla alone has."""

IN_ZOOKEEPER: Final = "zookeeper"
"""The protocol type of groups that coordinate in ZooKeeper, which brokers of Kafka don't know."""


class TopicPartition(NamedTuple):
    """A partition of a topic."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class OffsetAndMetadata(NamedTuple):
    """A group's committed offset for a partition, that of the next record to read, with the group's own metadata.

    ``leader_epoch`` is the epoch of the last record read, or None if it is unknown (KIP-320).
    """

    offset: int
    metadata: str = ""
    leader_epoch: int | None = None


class ConsumerGroupMetadata(NamedTuple):
    """How a group's coordinator knows a member: a commit with it is refused once the group has moved on (KIP-447).

    With the group's id alone, offsets are committed from outside the group, without that protection.
    """

    group_id: str
    generation_id: int = -1
    member_id: str = ""
    group_instance_id: str | None = None


class ProducerIdAndEpoch(NamedTuple):
    """A producer, as brokers know it."""

    producer_id: int
    epoch: int


class OffsetAndTimestamp(NamedTuple):
    """The first record from a timestamp on: its offset and its own timestamp in milliseconds."""

    offset: int
    timestamp: int
    leader_epoch: int | None = None


class OffsetSpec(IntEnum):
    """Offsets that can be looked up in place of a timestamp; the numbers are the protocol's."""

    LATEST = -1
    EARLIEST = -2
    MAX_TIMESTAMP = -3
    """The record with the greatest timestamp (KIP-734, from Kafka 3.0 on)."""


class TimedOffset(NamedTuple):
    """The first record at or after an offset, and its timestamp in milliseconds."""

    offset: int
    timestamp: int


class ListedOffset(NamedTuple):
    """The result of looking up an offset; -1 if there is none, as for a time after the last record."""

    offset: int
    timestamp: int = -1
    leader_epoch: int | None = None


class TimestampType(IntEnum):
    """The one who set a record's timestamp; the numbers are the bit in the record batch, and Java's."""

    NO_TIMESTAMP_TYPE = -1
    """It has none, -1: the message format 0, of clients before Kafka 0.10."""
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @classmethod
    def of(cls, header: BatchHeader) -> TimestampType:
        """That of a batch's records."""
        if header.magic == 0:
            return cls.NO_TIMESTAMP_TYPE
        return cls.LOG_APPEND_TIME if header.is_log_append_time else cls.CREATE_TIME


class RecordMetadata(NamedTuple):
    """The place where a sent record was written.

    ``offset`` is -1 if the broker didn't report it: with ``acks=0``, and for a duplicate of an old batch.
    ``timestamp`` is in milliseconds, the broker's if the topic uses LogAppendTime.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int


class ConsumerRecord(NamedTuple, Generic[K, V]):
    """A record from a consumer. ``timestamp`` is in milliseconds; ``value`` None is a tombstone.

    ``delivery_count`` is how often a share group has delivered the record, 1 the first time; None from other consumers.
    """

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: K | None
    value: V | None
    headers: Headers = ()
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    delivery_count: int | None = None

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class Node:
    """A broker with its advertised address."""

    id: int
    host: str
    port: int
    rack: str | None = None

    def __str__(self) -> str:
        return f"broker {self.id} ({self.host}:{self.port})"


@dataclass(frozen=True, slots=True)
class PartitionMetadata:
    """A partition with its leader (None if it has none), leader epoch and replicas.

    ``error`` is the partition's error code in the response, 0 if none.
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
    """A topic. ``id`` is None with brokers that are too old for topic ids. ``error`` is as in PartitionMetadata."""

    name: str
    id: bytes | None
    partitions: Mapping[int, PartitionMetadata] = field(default_factory=dict)
    is_internal: bool = False
    error: int = 0
