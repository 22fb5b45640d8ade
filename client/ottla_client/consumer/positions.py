"""The position in each partition, and what is needed before the consumer can read on.

A partition is in one of five stages; ``TRANSITIONS`` is the whole state machine. No I/O: ``resolver`` asks the brokers,
``fetcher`` reads, ``buffer`` hands out. Source: Java's ``SubscriptionState`` (KIP-320).
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
    """The offset of a timestamp or of an end of the log: ``reset_to``."""
    NEEDS_VALIDATION = auto()
    """The new leader's confirmation that its log has the records before the position (KIP-320)."""
    FETCHING = auto()
    """Nothing: it has a position and is read unless paused."""
    FAILED = auto()
    """The application: ``error`` was raised. A seek clears it, or the topic's return."""


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
# An event that a stage's row lacks came too late and changes nothing.
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

    ``position`` is the offset of the next record to hand out, ``fetch_offset`` of the next to fetch; records between
    them are buffered. ``processed_offset`` is the position when the application last asked for records: it has
    processed all records before it. ``version`` changes when buffered records and requests in flight become invalid;
    responses carry the version of their request.
    """

    __slots__ = (
        "attempts",
        "buffered",
        "busy",
        "committed",
        "epoch",
        "error",
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
        "reported",
        "reset_to",
        "retry_at",
        "stage",
        "topic_id",
        "unsettled",
        "version",
        "withheld",
    )

    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.stage = Stage.NEEDS_OFFSET
        self.version = 0
        self.paused = False
        self.position: int | None = None
        self.processed_offset: int | None = None
        self.committed: int | None = None
        """The group's committed offset, as far as known; it need not be committed again."""
        self.unsettled = False
        """Whether records were handed out whose offsets are in no transaction; for ``transaction_offsets`` alone."""
        self.epoch: int | None = None
        """The leader epoch of the record before the position, if known."""
        self.fetch_offset = 0
        self.leader_epoch: int | None = None
        """The current leader's epoch, as far as this consumer knows."""
        self.topic_id: bytes | None = None
        self.reset_to: int = OffsetSpec.LATEST
        self.buffered = 0
        """Bytes fetched and not handed out."""
        self.high_watermark: int | None = None
        self.last_stable_offset: int | None = None
        self.replica: int | None = None
        """The follower that the leader says to read from (KIP-392), until ``replica_until``."""
        self.replica_until = 0.0
        self.busy = False
        """Its offset is being looked up, or not to be looked up yet."""
        self.withheld = False
        """It is not fetched yet: the rebalance listener may still seek."""
        self.retry_at = 0.0
        self.attempts = 0
        self.missing_since: float | None = None
        """Since when the cluster reports that the partition doesn't exist."""
        self.error: ClientError | None = None
        self.reported = False
        """Whether ``error`` was raised."""

    @property
    def may_be_fetched(self) -> bool:
        return self.stage is Stage.FETCHING and not self.paused and not self.withheld

    def happen(self, event: Event) -> bool:
        """Move to the stage of the table; False if the table has none."""
        stage = TRANSITIONS[self.stage].get(event)
        if stage is None:
            return False
        self.stage = stage
        if event is not Event.FAILED:
            self.error = None
        return True

    def seek(self, offset: int, epoch: int | None = None) -> None:
        """Continue at ``offset``; ``epoch`` is the leader epoch of the record before it, if known."""
        self.happen(Event.SOUGHT)
        self.unsettled = False
        self._move(offset, epoch)

    def reset(self, to: int) -> None:
        """Continue at a timestamp, or at an end of the log (``OffsetSpec``)."""
        self.happen(Event.RESET)
        self.unsettled = False
        self.reset_to = to
        self.forget_buffered()
        self.calm()

    def found(self, offset: int, epoch: int | None) -> None:
        """The offset was looked up."""
        if self.happen(Event.FOUND):
            self._move(offset, epoch)

    def fail(self, error: ClientError) -> None:
        """Stop reading; the next poll raises ``error``."""
        self.happen(Event.FAILED)
        self.error = error
        self.reported = False
        self.forget_buffered()

    def led_by(self, epoch: int | None) -> bool:
        """The partition has a leader of ``epoch``; True if the position must be validated with it."""
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
        """Have the position validated, if the epoch of the record before it is known."""
        if self.epoch is not None and self.leader_epoch is not None and self.happen(Event.LEADER_CHANGED):
            self.calm()

    def validated(self) -> None:
        """The leader has the records before the position."""
        if self.happen(Event.VALIDATED):
            self.calm()

    def forget_buffered(self) -> None:
        """Fetch again from the position: buffered records and requests in flight are invalid."""
        self.version += 1
        self.buffered = 0
        if self.position is not None:
            self.fetch_offset = self.position

    def _move(self, offset: int, epoch: int | None) -> None:
        self.position = self.processed_offset = offset
        self.epoch = epoch
        self.forget_buffered()
        self.calm()

    def back_off(self, seconds: float) -> None:
        """Don't ask again for ``seconds``."""
        self.attempts += 1
        self.retry_at = monotonic() + seconds

    def calm(self) -> None:
        """A request succeeded: end the back-off."""
        self.attempts = 0
        self.retry_at = 0.0
        self.missing_since = None


class Positions:
    """The assigned partitions, in the order of fetching."""

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
        """Add partitions; those that are assigned already stay as they are. Returns the new ones."""
        added = []
        for partition in partitions:
            if partition not in self._states:
                state = self._states[partition] = PartitionState(partition)
                added.append(state)
        return added

    def remove(self, partitions: Collection[TopicPartition]) -> list[PartitionState]:
        """Remove partitions; their buffered records become invalid."""
        removed = []
        for partition in partitions:
            state = self._states.pop(partition, None)
            if state is not None:
                state.version += 1
                state.buffered = 0
                removed.append(state)
        return removed

    def to_the_back(self, state: PartitionState) -> None:
        """Fetch other partitions first: this one had its turn."""
        if self._states.get(state.partition) is state:
            self._states[state.partition] = self._states.pop(state.partition)
