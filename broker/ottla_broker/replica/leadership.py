"""What a partition knows while this broker leads it: its followers, who is in sync, and how far they have come.

The in-sync replicas change when the controller has agreed. Until then a record counts as committed only when both sets
have it, so that whichever holds in the end, no replica of it lacks a committed record.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.follower_state import FollowerState
from ottla_broker.replica.offset_waiters import OffsetWaiters


class LeaderState(NamedTuple):
    """What the controller says of a partition; ``partition_epoch`` is the version of its node in the store."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]


class Leadership:
    """Owned by the partition, which moves the high watermark to what :meth:`committed_offset` says.

    Attributes:
        isr: the in-sync replicas that the controller has agreed to.
        pending_isr: while a change of them is under way, the union of both sets; None otherwise.
        followers: the other replicas, by broker.
        own_end: how far the leader's own log counts, without records that still wait for an fsync.
        epoch_start: the log's end when the epoch began: a replica that has less is not in sync with this epoch.
        log_start_waiters: callers of DeleteRecords that wait for all replicas to follow the log's start.
    """

    __slots__ = (
        "_environment",
        "epoch_start",
        "followers",
        "isr",
        "log_start_waiters",
        "own_end",
        "pending_isr",
    )

    def __init__(self, environment: ReplicaEnvironment) -> None:
        self._environment = environment
        self.isr: list[int] = []
        self.pending_isr: tuple[int, ...] | None = None
        self.followers: dict[int, FollowerState] = {}
        self.own_end = 0
        self.epoch_start = 0
        self.log_start_waiters: OffsetWaiters | None = None

    def update(self, state: LeaderState) -> None:
        """Adopt the replicas and in-sync replicas that the controller has set; they end a change under way."""
        self.isr = list(state.isr)
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
                and (follower is None or now - follower.last_fetch > lease.patience)
                and not lease.is_dead(broker_id)
            ):
                return False
        return True

    def can_join(self, follower: FollowerState, high_watermark: int) -> bool:
        """Whether a follower has all that is committed, and all of this epoch's beginning."""
        return (
            self.pending_isr is None
            and follower.end_offset >= max(high_watermark, self.epoch_start)
            and self._environment.is_eligible(follower.broker_id, follower.broker_epoch)
        )

    def lagging(self, log_end: int) -> set[int]:
        """The in-sync replicas that haven't caught up for ``replica.lag.time.max.ms``."""
        now, max_lag = self._environment.clock.monotonic(), self._environment.max_lag_seconds
        return {
            broker_id
            for broker_id, follower in self.followers.items()
            if broker_id in self.isr and not follower.is_caught_up(log_end, now, max_lag)
        }

    def low_watermark(self, log_start: int) -> int:
        """The least log start offset among the replicas that are alive: what DeleteRecords waits for."""
        starts = [
            follower.start_offset
            for follower in self.followers.values()
            if self._environment.is_eligible(follower.broker_id, follower.broker_epoch)
        ]
        return min([log_start, *starts])

    def broker_epoch(self, broker_id: int) -> int:
        """The registration under which a replica fetches; -1 where unknown, and for this broker."""
        follower = self.followers.get(broker_id)
        return -1 if follower is None else follower.broker_epoch
