"""The position in each partition, and what is needed before the consumer can read on.

A partition is in one of five stages; ``TRANSITIONS`` is the whole state machine. No I/O: ``resolver`` asks the brokers,
``fetcher`` reads, ``buffer`` hands out. Source: Java's ``SubscriptionState`` (KIP-320).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field
from enum import Enum, auto
from time import monotonic

from ottla_protocol.lag import unread

from ..errors import ClientError
from ..types import OffsetSpec, TopicPartition

FORGIVEN_AFTER = 60.0
"""Seconds after which a setback of a partition no longer counts."""


class Stage(Enum):
    """The stages of a partition, by what it waits for."""

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
    """The events of a partition."""

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


@dataclass(eq=False, slots=True)
class PartitionState:
    """One assigned partition.

    ``position`` is the offset of the next record to hand out, ``fetch_offset`` of the next to fetch; records between
    them are buffered. ``processed_offset`` is the position when the application last asked for records: it has
    processed all records before it. ``version`` changes when buffered records and requests in flight become invalid;
    responses carry the version of their request.
    """

    partition: TopicPartition
    stage: Stage = field(default=Stage.NEEDS_OFFSET, init=False)
    version: int = field(default=0, init=False)
    paused: bool = field(default=False, init=False)
    position: int | None = field(default=None, init=False)
    processed_offset: int | None = field(default=None, init=False)
    committed: int | None = field(default=None, init=False)
    """The group's committed offset, as far as known; it need not be committed again."""
    unsettled: bool = field(default=False, init=False)
    """Whether records were handed out whose offsets are in no transaction; for ``transaction_offsets`` alone."""
    epoch: int | None = field(default=None, init=False)
    """The leader epoch of the record before the position, if known."""
    fetch_offset: int = field(default=0, init=False)
    leader_epoch: int | None = field(default=None, init=False)
    """The current leader's epoch, as far as this consumer knows."""
    topic_id: bytes | None = field(default=None, init=False)
    reset_to: int = field(default=OffsetSpec.LATEST, init=False)
    buffered: int = field(default=0, init=False)
    """Bytes fetched and not handed out."""
    high_watermark: int | None = field(default=None, init=False)
    last_stable_offset: int | None = field(default=None, init=False)
    replica: int | None = field(default=None, init=False)
    """The follower that the leader says to read from (KIP-392), until ``replica_until``."""
    replica_until: float = field(default=0.0, init=False)
    busy: bool = field(default=False, init=False)
    """Its offset is being looked up, or not to be looked up yet."""
    withheld: bool = field(default=False, init=False)
    """It is not fetched yet: the rebalance listener may still seek."""
    retry_at: float = field(default=0.0, init=False)
    attempts: int = field(default=0, init=False)
    setbacks: int = field(default=0, init=False)
    """Answers in a row without an error to retry that led nowhere: see ``set_back``."""
    set_back_at: float = field(default=-FORGIVEN_AFTER, init=False)
    missing_since: float | None = field(default=None, init=False)
    """Since when the cluster reports that the partition doesn't exist."""
    error: ClientError | None = field(default=None, init=False)
    reported: bool = field(default=False, init=False)
    """Whether ``error`` was raised."""

    def lag(self, *, read_committed: bool) -> int | None:
        """The offsets between the position and the end, as of the last fetch; None before the first one."""
        end = self.last_stable_offset if read_committed else self.high_watermark
        if end is None or end < 0 or self.position is None:
            return None
        return unread(self.position, 0, end)

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

    def set_back(self, pause: Callable[[int], float]) -> None:
        """A fetch was answered, but the position must be looked up again, or is where it was.

        ``pause`` gives the seconds to wait after a number of failures. The first setback needs no pause: it is
        ordinary when retention overtakes a reader, or another replica is to be asked. What makes a broker answer like
        this each time could otherwise have the consumer ask thousands of times a second.
        """
        now = monotonic()
        if now - self.set_back_at > FORGIVEN_AFTER:
            self.setbacks = 0
        self.set_back_at = now
        self.retry_at = now + pause(self.setbacks)
        self.setbacks += 1

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
