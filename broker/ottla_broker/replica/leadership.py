"""A partition's state while this broker leads it: its followers, which are in sync, and how far they are.

The in-sync replicas change when the controller has agreed. Until then a record counts as committed only when both sets
have it, so that whichever holds in the end, no replica of it lacks a committed record.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla_broker.events import get_logger
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.follower_state import FollowerState
from ottla_broker.replica.offset_waiters import OffsetWaiters
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from ottla_broker.replica.isr import IsrChange, IsrOutcome

_log = get_logger()

OnIsrAnswer = Callable[["IsrChange", "IsrOutcome"], bool]


class LeaderState(NamedTuple):
    """A partition's state from the controller; ``partition_epoch`` is the version of its node in the store."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]


_AWAITING_CONTROLLER: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller has a newer state and is about to send it: the change stays open until then."""


class Identity(Protocol):
    """The partition that is led."""

    topic: str
    topic_id: bytes
    partition: int


@dataclass(eq=False, slots=True)
class Leadership:
    """Owned by the partition, which moves the high watermark to what :meth:`committed_offset` says.

    Attributes:
        leader_epoch, partition_epoch: of the state from the controller that holds.
        isr: the in-sync replicas that the controller has agreed to.
        pending_isr: while a change of them is under way, the union of both sets; None otherwise.
        followers: the other replicas, by broker.
        own_end: how far the leader's own log counts, without records that still wait for an fsync.
        epoch_start: the log's end when the epoch began: a replica that has less is not in sync with this epoch.
        log_start_waiters: callers of DeleteRecords that wait for all replicas to follow the log's start.
    """

    _environment: ReplicaEnvironment
    _identity: Identity
    leader_epoch: int = field(default=-1, init=False)
    partition_epoch: int = field(default=-1, init=False)
    isr: Sequence[int] = field(default=(), init=False)
    pending_isr: tuple[int, ...] | None = field(default=None, init=False)
    followers: dict[int, FollowerState] = field(default_factory=dict, init=False)
    own_end: int = field(default=0, init=False)
    epoch_start: int = field(default=0, init=False)
    log_start_waiters: OffsetWaiters | None = field(default=None, init=False)

    def update(self, state: LeaderState) -> None:
        """Adopt the replicas and in-sync replicas that the controller has set; they end a change under way."""
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.isr = state.isr
        self.pending_isr = None
        known = self.followers
        self.followers = {
            broker_id: known.get(broker_id) or FollowerState(broker_id)
            for broker_id in state.replicas
            if broker_id != self._environment.broker_id
        }

    def begin_epoch(self, log_end: int) -> None:
        """Begin to lead in a new epoch, with a log that ends at ``log_end``."""
        self.epoch_start = self.own_end = log_end
        if self.followers:
            now = self._environment.clock.monotonic()
            for broker_id, follower in self.followers.items():
                follower.begin_epoch(now, log_end, broker_id in self.isr)

    def counted(self) -> Collection[int]:
        """The replicas that a record must reach before it is committed: those in sync, and those about to be."""
        return self.isr if self.pending_isr is None else self.pending_isr

    def committed_offset(self, high_watermark: int, log_end: int) -> int:
        """The least end among the leader, the replicas that count, and those that have caught up."""
        committed = self.own_end
        if committed <= high_watermark:
            return high_watermark
        environment = self._environment
        counted = self.counted()
        now = environment.clock.monotonic()
        for broker_id, follower in self.followers.items():
            if follower.end_offset < committed and (
                broker_id in counted
                or (
                    follower.is_caught_up(log_end, now, environment.max_lag_seconds)
                    and environment.is_eligible(broker_id, follower.broker_epoch)
                )
            ):
                committed = follower.end_offset
        return committed

    def is_followed(self, now: float) -> bool:
        """Whether every replica that could lead instead follows this broker or has ended: see ``leader_lease``."""
        environment = self._environment
        lease = environment.leader_lease
        for broker_id in self.counted():
            follower = self.followers.get(broker_id)
            if (
                broker_id != environment.broker_id
                and (follower is None or now - follower.followed_at > lease.patience)
                and not lease.is_dead(broker_id)
            ):
                return False
        return True

    def low_watermark(self, log_start: int) -> int:
        """The least log start offset among the replicas that are alive: what DeleteRecords waits for."""
        starts = [
            follower.start_offset
            for follower in self.followers.values()
            if self._environment.is_eligible(follower.broker_id, follower.broker_epoch)
        ]
        return min([log_start, *starts])

    def add_caught_up(self, follower: FollowerState, high_watermark: int, on_answer: OnIsrAnswer) -> None:
        """Propose to add a follower that has all that is committed, and all up to the epoch's start."""
        if (
            self.pending_isr is None
            and follower.end_offset >= max(high_watermark, self.epoch_start)
            and self._environment.is_eligible(follower.broker_id, follower.broker_epoch)
        ):
            self._propose((*self.isr, follower.broker_id), on_answer)

    def remove_lossy(self, follower: FollowerState, high_watermark: int, on_answer: OnIsrAnswer) -> None:
        """Propose to remove a replica that has lost committed records: its disk, or what it had not flushed.

        If it were elected, they would be lost for good. (Kafka leaves it in until it lags for too long.)
        """
        if self.pending_isr is None:
            _log.warning(
                "a replica in sync has lost committed records",
                topic=self._identity.topic,
                partition=self._identity.partition,
                replica=follower.broker_id,
                end_offset=follower.end_offset,
                high_watermark=high_watermark,
            )
            self._propose(tuple(each for each in self.isr if each != follower.broker_id), on_answer)

    def remove_lagging(self, log_end: int, high_watermark: int, on_answer: OnIsrAnswer) -> None:
        """Propose to remove in-sync replicas that haven't caught up for ``replica.lag.time.max.ms``."""
        if self.pending_isr is not None or len(self.isr) < 2:
            return
        now, max_lag = self._environment.clock.monotonic(), self._environment.max_lag_seconds
        lagging = {
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr and not follower.is_caught_up(log_end, now, max_lag)
        }
        if lagging:
            _log.info(
                "replicas out of sync",
                topic=self._identity.topic,
                partition=self._identity.partition,
                replicas=sorted(lagging),
                end_offset=log_end,
                high_watermark=high_watermark,
            )
            self._propose(tuple(each for each in self.isr if each not in lagging), on_answer)

    def _propose(self, isr: tuple[int, ...], on_answer: OnIsrAnswer) -> None:
        from ottla_broker.replica.isr import IsrChange

        self.pending_isr = tuple({*self.isr, *isr})
        followers = self.followers
        self._environment.propose(
            IsrChange(
                self._identity.topic,
                self._identity.topic_id,
                self._identity.partition,
                self.leader_epoch,
                self.partition_epoch,
                isr,
                tuple(followers[each].broker_epoch if each in followers else -1 for each in isr),
                on_answer,
            )
        )

    def on_isr_answer(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        """Apply the controller's answer to a change; False: the controller must be asked again."""
        if (
            self.pending_isr is None
            or change.leader_epoch != self.leader_epoch
            or change.partition_epoch != self.partition_epoch
        ):
            return True  # the controller has sent a newer state meanwhile
        if outcome.error is ErrorCode.NONE:
            if outcome.leader_epoch != self.leader_epoch or outcome.partition_epoch < self.partition_epoch:
                return True
            self._count_change(len(self.isr), len(outcome.isr))
            self.isr = list(outcome.isr)
            self.partition_epoch = outcome.partition_epoch
            self.pending_isr = None
            _log.info(
                "isr changed",
                topic=self._identity.topic,
                partition=self._identity.partition,
                isr=self.isr,
            )
            return True
        self._environment.counters.failed_isr_updates += 1
        if outcome.error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            self.pending_isr = None
            return True
        return outcome.error in _AWAITING_CONTROLLER

    def _count_change(self, before: int, after: int) -> None:
        """Count a change of the number of in-sync replicas, for metrics."""
        counters = self._environment.counters
        if after < before:
            counters.isr_shrinks += 1
        elif after > before:
            counters.isr_expands += 1
