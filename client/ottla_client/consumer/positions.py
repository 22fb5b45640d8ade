"""Where a consumer is in each of its partitions, and what has to happen before it can read on.

A partition is in one of five stages; ``TRANSITIONS`` is the whole machine. No I/O: ``resolver`` asks the
brokers, ``fetcher`` reads, ``buffer`` hands out. Source: Java's ``SubscriptionState`` (KIP-320).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from enum import Enum, auto
from time import monotonic

from ..errors import ClientError
from ..types import OffsetSpec, TopicPartition


class Stage(Enum):
    """What a partition waits for."""

    NEEDS_OFFSET = auto()
    """The group's committed offset."""
    NEEDS_RESET = auto()
    """The offset of a time, or of an end of the log; ``reset_to`` says which."""
    NEEDS_VALIDATION = auto()
    """The new leader's word that its log holds what was read before the position (KIP-320)."""
    FETCHING = auto()
    """Nothing: it has a position, and is read unless it is paused."""
    FAILED = auto()
    """The application: ``error`` was raised, and a seek, or the topic's return, mends it."""


class Event(Enum):
    """What happens to a partition."""

    SOUGHT = auto()
    RESET = auto()
    FOUND = auto()
    LEADER_CHANGED = auto()
    VALIDATED = auto()
    FAILED = auto()


_N, _R, _V, _F, _X = (
    Stage.NEEDS_OFFSET,
    Stage.NEEDS_RESET,
    Stage.NEEDS_VALIDATION,
    Stage.FETCHING,
    Stage.FAILED,
)
# An event that a stage's row doesn't have comes too late, and changes nothing.
TRANSITIONS: dict[Stage, dict[Event, Stage]] = {
    _N: {Event.SOUGHT: _F, Event.RESET: _R, Event.FOUND: _F, Event.FAILED: _X},
    _R: {Event.SOUGHT: _F, Event.RESET: _R, Event.FOUND: _F, Event.FAILED: _X},
    _V: {
        Event.SOUGHT: _F,
        Event.RESET: _R,
        Event.FOUND: _F,
        Event.LEADER_CHANGED: _V,
        Event.VALIDATED: _F,
        Event.FAILED: _X,
    },
    _F: {Event.SOUGHT: _F, Event.RESET: _R, Event.LEADER_CHANGED: _V, Event.FAILED: _X},
    _X: {Event.SOUGHT: _F, Event.RESET: _R, Event.FAILED: _X},
}


class PartitionState:
    """One assigned partition.

    ``position`` is the offset of the next record to hand out, ``fetch_offset`` of the next to fetch: what lies
    between is buffered. ``processed_offset`` is the position when the application last asked for records: it is
    done with everything before. ``version`` changes whenever what is buffered or being asked for has become worthless;
    answers carry the version that they were asked under.
    """

    __slots__ = (
        "attempts",
        "buffered",
        "busy",
        "committed",
        "epoch",
        "error",
        "fetch_epoch",
        "fetch_offset",
        "high_watermark",
        "last_stable_offset",
        "leader_epoch",
        "missing_since",
        "partition",
        "paused",
        "position",
        "processed_offset",
        "replica",
        "replica_until",
        "reset_to",
        "retry_at",
        "stage",
        "told",
        "topic_id",
        "version",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.stage = Stage.NEEDS_OFFSET
        self.version = 0
        self.paused = False
        self.position: int | None = None
        self.processed_offset: int | None = None
        self.committed: int | None = None
        """What the group has of it, as far as known: there is no need to commit it again."""
        self.epoch: int | None = None
        """Leader epoch of the record before the position, where known."""
        self.fetch_offset = 0
        self.fetch_epoch: int | None = None
        self.leader_epoch: int | None = None
        """The current leader's epoch, as far as this consumer has seen."""
        self.topic_id: bytes | None = None
        self.reset_to: int = OffsetSpec.LATEST
        self.buffered = 0
        """Bytes that are fetched and not handed out."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.replica: int | None = None
        """A follower that the leader has said to read from (KIP-392), until ``replica_until``."""
        self.replica_until = 0.0
        self.busy = False
        """Somebody is asking for its offset at this moment."""
        self.retry_at = 0.0
        self.attempts = 0
        self.missing_since: float | None = None
        """Since when the cluster says that there is no such partition."""
        self.error: ClientError | None = None
        self.told = False
        """Whether ``error`` has been raised."""

    def happen(self, event: Event) -> bool:
        """Go where the table says; False where it says nothing."""
        stage = TRANSITIONS[self.stage].get(event)
        if stage is None:
            return False
        self.stage = stage
        if event is not Event.FAILED:
            self.error = None
        return True

    def seek(self, offset: int, epoch: int | None = None) -> None:
        """Read on at ``offset``; ``epoch`` is that of the record before it, if known."""
        self.happen(Event.SOUGHT)
        self._move(offset, epoch)

    def reset(self, to: int) -> None:
        """Read on at a time, or at an end of the log (OffsetSpec.EARLIEST, OffsetSpec.LATEST)."""
        self.happen(Event.RESET)
        self.reset_to = to
        self.forget_buffered()
        self.calm()

    def found(self, offset: int, epoch: int | None) -> None:
        """The offset that was asked for."""
        if self.happen(Event.FOUND):
            self._move(offset, epoch)

    def fail(self, error: ClientError) -> None:
        """Stop reading; the application is told ``error``."""
        self.happen(Event.FAILED)
        self.error = error
        self.told = False
        self.forget_buffered()

    def led_by(self, epoch: int | None) -> bool:
        """A leader of ``epoch`` has the partition; True where the position has to be validated with it."""
        if epoch is None or (self.leader_epoch is not None and epoch <= self.leader_epoch):
            return False
        first = self.leader_epoch is None
        self.leader_epoch = epoch
        self.replica = None
        if self.epoch is None or (first and self.epoch >= epoch):
            return False
        if not self.happen(Event.LEADER_CHANGED):
            return False
        self.forget_buffered()
        self.calm()
        return True

    def validate(self) -> None:
        """Have the position validated, where it came with the epoch of the record before it."""
        if self.epoch is not None and self.leader_epoch is not None and self.happen(Event.LEADER_CHANGED):
            self.calm()

    def validated(self) -> None:
        """The leader has what was read."""
        if self.happen(Event.VALIDATED):
            self.calm()

    def forget_buffered(self) -> None:
        """Fetch anew from the position: what is buffered or on its way is worthless."""
        self.version += 1
        self.buffered = 0
        if self.position is not None:
            self.fetch_offset = self.position
            self.fetch_epoch = self.epoch

    def _move(self, offset: int, epoch: int | None) -> None:
        self.position = self.processed_offset = offset
        self.epoch = epoch
        self.forget_buffered()
        self.calm()

    def back_off(self, seconds: float) -> None:
        """Leave it alone for ``seconds``."""
        self.attempts += 1
        self.retry_at = monotonic() + seconds

    def calm(self) -> None:
        """Something has worked: no more back-off."""
        self.attempts = 0
        self.retry_at = 0.0
        self.missing_since = None


class Positions:
    """The assigned partitions, in the order in which they are to be fetched."""

    def __init__(self) -> None:
        self._states: dict[TopicPartition, PartitionState] = {}

    def __iter__(self) -> Iterator[PartitionState]:
        return iter(self._states.values())

    def __len__(self) -> int:
        return len(self._states)

    def get(self, partition: TopicPartition) -> PartitionState | None:
        return self._states.get(partition)

    @property
    def partitions(self) -> frozenset[TopicPartition]:
        return frozenset(self._states)

    def add(self, partitions: Collection[TopicPartition]) -> list[PartitionState]:
        """Take partitions in; those that are there already stay as they are. Returns the new ones."""
        added = []
        for partition in partitions:
            if partition not in self._states:
                state = self._states[partition] = PartitionState(partition)
                added.append(state)
        return added

    def remove(self, partitions: Collection[TopicPartition]) -> list[PartitionState]:
        """Let partitions go; whatever is buffered of them is worthless from now on."""
        removed = []
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.version += 1
                state.buffered = 0
                removed.append(state)
        return removed

    def to_the_back(self, state: PartitionState) -> None:
        """It has had its turn: others are fetched first."""
        if self._states.pop(state.partition, None) is not None:
            self._states[state.partition] = state
