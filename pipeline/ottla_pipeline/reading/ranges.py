"""A task's ranges and settings: small values that travel from the planner to the task."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, TypeAlias
from uuid import UUID

if TYPE_CHECKING:
    from ottla_client import TopicPartition

Isolation: TypeAlias = Literal["read_uncommitted", "read_committed"]
Segments: TypeAlias = Literal["auto", "always", "never"]
OnCorrupt: TypeAlias = Literal["fail", "deadletter"]

COLUMNS: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "timestampType")
"""The columns of Spark's Kafka source, in its order; ``headers`` comes last if requested."""
HEADERS: Final = "headers"


@dataclass(frozen=True)
class SegmentPlace:
    """Where a broker keeps the partition's log, as it reports.

    ``folder`` is the broker's data folder (from DescribeLogDirs), not the partition's folder in it. ``cluster_id`` and
    ``broker_id`` are compared with the folder's meta.properties: on another machine, an executor may find another
    broker's data at the same path.
    """

    folder: str
    cluster_id: str
    broker_id: int


@dataclass(frozen=True)
class OffsetRange:
    """Offsets ``start`` to ``end`` (exclusive) of a partition, within the high watermark or last stable offset.

    ``topic_id`` is a UUID as text in any of its forms, empty if the broker has none. ``leader_epoch`` is the epoch of
    the leader that reported ``end``: a batch of a later epoch before ``end`` has replaced one that was lost. With -1
    that isn't noticed.
    """

    topic: str
    topic_id: str
    partition: int
    start: int
    end: int
    leader_epoch: int = -1
    segments: SegmentPlace | None = None

    def __post_init__(self) -> None:
        if not 0 <= self.start <= self.end:
            raise ValueError(
                f"{self.topic}-{self.partition}: offsets {self.start} to {self.end} are no range"
            )

    @property
    def topic_partition(self) -> TopicPartition:
        from ottla_client import TopicPartition

        return TopicPartition(self.topic, self.partition)

    @property
    def count(self) -> int:
        return self.end - self.start

    @property
    def topic_uuid(self) -> bytes | None:
        """The topic's id as 16 bytes; None if unknown."""
        return UUID(self.topic_id).bytes if self.topic_id else None


@dataclass(frozen=True)
class ReadSettings:
    """How to read. ``columns`` are the ones to decode, in that order.

    ``client`` has Kafka's names of client settings without ``kafka.``, with values as text. ``batch_rows`` is about how
    many rows a record batch has. ``fetch_bytes`` is the most that one fetch, or one read of a segment file, brings;
    about four times that is held in memory. With ``on_corrupt="deadletter"``, the caller of ``read`` gets batches that
    can't be decoded, instead of an error.
    """

    bootstrap_servers: str
    client: Mapping[str, str] = field(default_factory=dict)
    columns: tuple[str, ...] = COLUMNS
    isolation: Isolation = "read_uncommitted"
    segments: Segments = "auto"
    on_corrupt: OnCorrupt = "fail"
    fail_on_data_loss: bool = True
    batch_rows: int = 65536
    fetch_bytes: int = 8 * 1024 * 1024

    def __post_init__(self) -> None:
        unknown = [name for name in self.columns if name not in COLUMNS and name != HEADERS]
        if unknown:
            raise ValueError(
                f"unknown column {unknown[0]!r}; the columns are {', '.join((*COLUMNS, HEADERS))}"
            )
        for name in ("batch_rows", "fetch_bytes"):
            if getattr(self, name) < 1:
                raise ValueError(f"{name} is {getattr(self, name)}, it has to be above 0")
