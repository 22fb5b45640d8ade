"""What producers were promised and consumers read during a run: the checker's input.

Times are seconds on one clock of the process that runs the clients. Nothing here touches a network.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import NamedTuple

from tests.faults.exactly_once import Transformed


class Value(NamedTuple):
    """A record's value: each producer numbers its records in each partition from 0."""

    producer: str
    number: int

    def encode(self) -> bytes:
        return f"{self.producer}:{self.number}".encode()

    @classmethod
    def decode(cls, data: bytes | None) -> Value:
        """A value that no producer can have sent becomes its producer's name, with number -1."""
        producer, colon, number = (data or b"").decode(errors="replace").rpartition(":")
        return cls(producer, int(number)) if colon and number.isdigit() else cls(repr(data), -1)


class Acked(NamedTuple):
    """An acknowledged record. ``offset`` is -1 if its response was lost and only a later one came."""

    partition: int
    offset: int
    value: Value
    at: float


class Got(NamedTuple):
    """A record that a consumer was given."""

    partition: int
    offset: int
    value: Value


@dataclass
class Run:
    """What one consumer read from one assignment to the next. ``began``: when assigned."""

    reader: str
    began: float
    got: list[Got] = field(default_factory=list)


class Commit(NamedTuple):
    """An offset of the group: an answered commit, or the response to a fetch of offsets."""

    partition: int
    offset: int
    began: float
    ended: float


@dataclass
class History:
    """See above.

    Attributes:
        idempotent: by producer.
        sent: how many records each producer has sent to each partition.
        group: the runs of the group's members.
        readers: the runs of consumers that read everything, each from the beginning of the topic.
        commits, fetched: the group's committed offsets, and the ones that clients fetched.
        quiet: spans of time in which the cluster was whole.
        log: what stands in each partition in the end, in order of offsets, as a consumer reads it.
        epochs: under which id and epoch of its producer a record was written, by partition and offset.
        bumped: producers that have requested a new epoch.
        transformed: what programs have transformed exactly once, if there were any.
        complaints: errors at which a client gave up: fatal ones, offsets out of range.
    """

    idempotent: dict[str, bool] = field(default_factory=dict)
    sent: dict[tuple[str, int], int] = field(default_factory=dict)
    acked: list[Acked] = field(default_factory=list)
    group: list[Run] = field(default_factory=list)
    readers: list[Run] = field(default_factory=list)
    commits: list[Commit] = field(default_factory=list)
    fetched: list[Commit] = field(default_factory=list)
    quiet: list[tuple[float, float]] = field(default_factory=list)
    log: dict[int, list[Got]] = field(default_factory=dict)
    epochs: dict[tuple[int, int], tuple[int, int]] = field(default_factory=dict)
    bumped: set[str] = field(default_factory=set)
    transformed: Transformed | None = None
    complaints: list[str] = field(default_factory=list)
