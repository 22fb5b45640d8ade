"""One partition of a cluster: led here, followed here, or out of order. Kafka's ``Partition``.

Roles, and what each answers::

    role       append               client fetch             replica fetch   leaves by
    NONE       NOT_LEADER           NOT_LEADER               NOT_LEADER      lead(), follow()
    LEADER     yes                  to the high watermark    to the end      follow(), stop()
     in doubt  NOT_LEADER           NOT_LEADER               to the end      see ``standing``
    FOLLOWER   NOT_LEADER           only if the fetch allows NOT_LEADER      lead(), stop()
                                    a follower (KIP-392)
    OFFLINE    KAFKA_STORAGE_ERROR  in all three                             a restart of the broker

The high watermark of a leader is the least end offset among itself (as far as it owes no fsync), the in-sync replicas,
those that a change under way would add, and those that have caught up and are about to be added. It never goes back
within an epoch, and does not go on while fewer are in sync than ``min.insync.replicas`` (KIP-966). A follower's is what
its leader tells it, and never beyond its own log.

The in-sync replicas change when the controller has agreed. Until then the larger of both sets has to have a record
before it counts as committed, so that whichever holds in the end, nothing committed is missing from a replica of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.replica.partition import Partition, time_out
from ottla_broker.replica.remote import Remote
from ottla_broker.replica.standing import ASSURED, Standing
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.log.log import AppendInfo, Log
    from ottla_broker.log.manager import LogManager
    from ottla_broker.replica.delayed_fetch import DelayedFetch

log = get_logger()

NOBODY: Final = -1

_OFFSET_BYTES: Final = 8


class Role(Enum):
    """See the table above."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


class LeaderState(NamedTuple):
    """What the controller says of a partition; ``partition_epoch`` is the version of its node in the store."""

    controller_epoch: int
    leader: int
    leader_epoch: int
    isr: Sequence[int]
    partition_epoch: int
    replicas: Sequence[int]
    adding: Sequence[int] = ()
    removing: Sequence[int] = ()
    recovering: bool = False


class IsrChange(NamedTuple):
    """In-sync replicas to be, for the controller to agree to (AlterPartition).

    ``epochs`` are the registrations under which they were seen in sync, in the same order, -1 where it isn't known: a
    broker that has started anew since then, maybe with less in its log, is not the one that is meant (KIP-903).
    """

    partition: ReplicatedPartition
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    epochs: tuple[int, ...]


class IsrOutcome(NamedTuple):
    """The controller's answer to a change: an error, or the state that holds now."""

    error: ErrorCode
    leader_epoch: int = -1
    partition_epoch: int = -1
    isr: tuple[int, ...] = ()


_WAIT_FOR_NEWS: Final = frozenset(
    {
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""The controller knows something newer of the partition, and is about to tell: the change stays open until then."""


class ReplicatedPartition(Partition):
    """See above. Owned by the loop thread.

    Attributes:
        role: see the table.
        leader: the broker that leads, -1 for none.
        isr: the in-sync replicas that the controller has agreed to; a follower doesn't know them.
        remotes: the other replicas, while this broker leads.
        follower_fetches: fetches of followers that wait for data. Those of consumers are in ``fetches``.
        eligible: says whether a broker may join the in-sync replicas: it is alive, and doesn't shut down.
        propose: takes a change of the in-sync replicas to the controller; its answer goes to :meth:`settle`.
    """

    __slots__ = (
        "_epoch_start",
        "_max_lag",
        "_own_end",
        "_pending_isr",
        "_standing",
        "_start_waiters",
        "adding",
        "broker_id",
        "eligible",
        "follower_fetches",
        "leader",
        "partition_epoch",
        "propose",
        "remotes",
        "removing",
        "role",
    )

    def __init__(
        self,
        topic: str,
        partition: int,
        topic_id: bytes,
        broker_id: int,
        logs: LogManager,
        clock: Clock,
        max_lag_ms: int,
        eligible: Callable[[int, int], bool],
        propose: Callable[[IsrChange], None],
        standing: Standing = ASSURED,
    ) -> None:
        super().__init__(topic, partition, topic_id, -1, [], logs, clock)
        self._standing = standing
        self.broker_id = broker_id
        self.role = Role.NONE
        self.leader = NOBODY
        self.partition_epoch = -1
        self.adding: Sequence[int] = ()
        self.removing: Sequence[int] = ()
        self.remotes: dict[int, Remote] = {}
        self.follower_fetches: set[DelayedFetch] = set()
        self.eligible = eligible
        self.propose = propose
        self._max_lag = max_lag_ms / 1000
        # How far the leader's own log counts: without what an fsync is owed for.
        self._own_end = 0
        # The log's end when this broker became leader in this epoch: who has less is not in sync with this epoch.
        self._epoch_start = 0
        self._pending_isr: tuple[int, ...] | None = None
        # Who waits for all replicas to have followed the log's start: (offset, future).
        self._start_waiters: list[tuple[int, asyncio.Future[int]]] = []

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} {self.role.value} epoch {self.leader_epoch}>"

    # ---- roles

    def lead(self, state: LeaderState) -> bool:
        """Become the leader, or take note of a new state as leader. True: in a new epoch.

        Raises KafkaError: KAFKA_STORAGE_ERROR.
        """
        was_leader = self.role is Role.LEADER
        new_epoch = state.leader_epoch > self.leader_epoch or not was_leader
        local = self._open_log()
        self._take(state)
        self.isr = list(state.isr)
        self.leader = self.broker_id
        self._pending_isr = None
        known = self.remotes
        self.remotes = {
            broker_id: known.get(broker_id) or Remote(broker_id)
            for broker_id in state.replicas
            if broker_id != self.broker_id
        }
        self.role = Role.LEADER
        if new_epoch:
            end = local.log_end_offset
            self._epoch_start = end
            self._own_end = end
            local.assign_epoch(state.leader_epoch, end)
            now = self._clock.monotonic()
            for broker_id, remote in self.remotes.items():
                remote.begin(now, end, broker_id in self.isr)
            # Fetches that wait here are of another epoch, or of a follower.
            self.answer_fetches()
        self._advance_committed()
        return new_epoch

    def follow(self, state: LeaderState) -> bool:
        """Become a follower, or take note of a new state as one. True: of another leader, or in a new epoch."""
        new = self.role is not Role.FOLLOWER or state.leader_epoch > self.leader_epoch
        self._open_log()
        self._take(state)
        self.isr = []
        self.leader = state.leader
        self.remotes = {}
        self._pending_isr = None
        self.role = Role.FOLLOWER
        if new:
            # Whoever waits for this broker as the leader looks for the other one.
            self.fail_waiters(ErrorCode.NOT_LEADER_OR_FOLLOWER)
            self.answer_fetches()
        return new

    def go_offline(self) -> None:
        """Its disk has failed: nothing more is served."""
        self.role = Role.OFFLINE
        self.remotes = {}
        self._pending_isr = None
        self.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
        self.answer_fetches()

    def stop(self) -> None:
        self.role = Role.NONE if self.role is not Role.OFFLINE else Role.OFFLINE
        self.remotes = {}
        super().stop()

    def _take(self, state: LeaderState) -> None:
        self.leader_epoch = state.leader_epoch
        self.partition_epoch = state.partition_epoch
        self.replicas = list(state.replicas)
        self.adding = state.adding
        self.removing = state.removing
        self.stopped = False

    def _open_log(self) -> Log:
        """The log, in order to lead or follow. Raises KafkaError: KAFKA_STORAGE_ERROR, also for one that has failed."""
        local = self.log
        if local.failure is not None:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, local.failure)
        return local

    def _committed_at_first(self, log: Log) -> int:
        """Of a log that is opened, what was written down as committed: the rest may be cut."""
        written = self._logs.high_watermark(self.topic, self.partition) or 0
        return min(max(log.log_start_offset, written), log.log_end_offset)

    # ---- checks

    def check_leader(self) -> None:
        """Raise KafkaError unless this broker leads the partition, and nobody else may do so by now."""
        self._check_role()
        now = self._clock.monotonic()
        if now >= self._standing.lease.until and not self._is_followed(now):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _check_role(self) -> None:
        if self.role is Role.LEADER:
            return
        if self.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def _is_followed(self, now: float) -> bool:
        """Whether all replicas that could lead instead follow this broker, or have ended: see ``standing``."""
        standing = self._standing
        for broker_id in self.in_sync():
            remote = self.remotes.get(broker_id)
            if (
                broker_id != self.broker_id
                and (remote is None or now - remote.last_fetch > standing.patience)
                and not standing.is_dead(broker_id)
            ):
                return False
        return True

    @property
    def is_led_here(self) -> bool:
        """Whether :meth:`check_leader` has nothing to say."""
        try:
            self.check_leader()
        except KafkaError:
            return False
        return True

    def check_readable(self, current_leader_epoch: int, any_replica: bool) -> None:
        self.check_epoch(current_leader_epoch)
        if not (any_replica and self.role is Role.FOLLOWER):
            self.check_leader()

    def lacks_replicas(self) -> bool:
        self._check_role()
        return len(self.isr) < self.min_insync_replicas

    @property
    def is_leader(self) -> bool:
        return self.role is Role.LEADER

    @property
    def epoch_start(self) -> int:
        return self._epoch_start if self.role is Role.LEADER else 0

    # ---- appending as the leader

    def append(self, records: memoryview, now_ms: int) -> AppendInfo:
        self.check_leader()
        return super().append(records, now_ms)

    def append_internal(self, records: bytearray, now_ms: int) -> int:
        """A coordinator's own records, which all in-sync replicas have to get.

        Raises:
            KafkaError: as the base does; NOT_ENOUGH_REPLICAS.
        """
        self.check_leader()
        if len(self.isr) < self.min_insync_replicas:
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        return super().append_internal(records, now_ms)

    def _appended(self, info: AppendInfo) -> None:
        super()._appended(info)
        if self.follower_fetches:
            for fetch in list(self.follower_fetches):
                fetch.grow(info.size)

    def _advance(self, offset: int) -> None:
        """The leader's own log counts up to ``offset``."""
        # An fsync that was begun before the log was cut may speak of what is gone.
        offset = min(offset, self.log.log_end_offset)
        if offset > self._own_end:
            self._own_end = offset
        self._advance_committed()

    def _advance_committed(self) -> None:
        """Move the high watermark as far as the replicas have come."""
        isr = self.isr
        if len(isr) < self.min_insync_replicas:
            return
        committed = self._own_end
        if committed <= self._high_watermark:
            return
        pending = self._pending_isr
        now = self._clock.monotonic()
        end = self.log.log_end_offset
        for broker_id, remote in self.remotes.items():
            if remote.end_offset < committed and (
                broker_id in isr
                or (pending is not None and broker_id in pending)
                or (
                    remote.is_caught_up(end, now, self._max_lag)
                    and self.eligible(broker_id, remote.broker_epoch)
                )
            ):
                committed = remote.end_offset
        super()._advance(committed)

    # ---- followers of this leader

    def fetched_by(self, broker_id: int, offset: int, start_offset: int, broker_epoch: int) -> None:
        """A follower has asked for ``offset``, so it has all below. Kafka's ``updateFollowerFetchState``.

        Raises:
            KafkaError: UNKNOWN_LEADER_EPOCH for a broker that is no replica as far as this leader knows: it may
                have heard of a reassignment before this leader has. NOT_LEADER_OR_FOLLOWER for a fetch that was
                sent before that broker registered anew.
        """
        remote = self.follower(broker_id)
        if 0 <= broker_epoch < remote.broker_epoch:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        end = self.log.log_end_offset
        before, start_before = remote.end_offset, remote.start_offset
        remote.fetched(offset, start_offset, end, self._clock.monotonic(), broker_epoch)
        if broker_id not in self.isr:
            self._consider_adding(remote)
        elif offset < self._high_watermark:
            self._consider_lost(remote)
        if offset != before or self._waiters:
            # Somebody else may have been waited for who doesn't count any longer.
            self._advance_committed()
        if start_offset != start_before and self._start_waiters:
            self._tell_start()

    def has_nothing_for(
        self, broker_id: int, broker_epoch: int, leader_epoch: int, offset: int, start_offset: int, told: bool
    ) -> bool:
        """Whether a fetch only says what is known: a follower in sync is at the log's end, which is committed.

        Unless it was ``told`` before, the follower has been heard then. False: it has to be looked at closely.
        """
        if (
            self.role is not Role.LEADER
            or leader_epoch != self.leader_epoch
            or self._high_watermark != offset
        ):
            return False
        local, remote = self._log, self.remotes.get(broker_id)
        if (
            local is None
            or remote is None
            or remote.end_offset != offset
            or remote.start_offset != start_offset
            or remote.broker_epoch != broker_epoch
            or local.log_end_offset != offset
            or broker_id not in self.isr
        ):
            return False
        if not told:
            remote.still_there(self._clock.monotonic())
        return True

    def follower(self, broker_id: int) -> Remote:
        """What is known of a follower. Raises KafkaError: UNKNOWN_LEADER_EPOCH for a broker that is none."""
        self._check_role()
        remote = self.remotes.get(broker_id)
        if remote is None:
            raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)
        return remote

    def _consider_adding(self, remote: Remote) -> None:
        """Ask to have a follower added to the in-sync replicas that has all that is committed, and this epoch."""
        if (
            self._pending_isr is None
            and remote.end_offset >= max(self.high_watermark, self._epoch_start)
            and self.eligible(remote.broker_id, remote.broker_epoch)
        ):
            self._ask((*self.isr, remote.broker_id))

    def brokers_changed(self) -> None:
        """Brokers have come or gone: whoever has gone is waited for no longer."""
        if self.role is Role.LEADER:
            self._advance_committed()
            if self._start_waiters:
                self._tell_start()

    def _consider_lost(self, remote: Remote) -> None:
        """Ask to have a replica removed that has lost committed records: its disk, or what it had not flushed.

        Were it to be elected, they would be lost for good. (Kafka leaves it in until it lags for too long.)
        """
        if self._pending_isr is None:
            log.warning(
                "a replica in sync has lost committed records",
                topic=self.topic,
                partition=self.partition,
                replica=remote.broker_id,
                end_offset=remote.end_offset,
                high_watermark=self._high_watermark,
            )
            self._ask(tuple(broker_id for broker_id in self.isr if broker_id != remote.broker_id))

    def consider_removing(self) -> None:
        """Ask to have those removed that have not caught up for too long. To be called from time to time."""
        if self._start_waiters:
            self._tell_start()  # a broker may have died that was waited for
        if self.role is Role.LEADER:
            self._advance_committed()
        if self.role is not Role.LEADER or self._pending_isr is not None or len(self.isr) < 2:
            return
        now, end = self._clock.monotonic(), self.log.log_end_offset
        late = {
            broker_id
            for broker_id, remote in self.remotes.items()
            if broker_id in self.isr and not remote.is_caught_up(end, now, self._max_lag)
        }
        if late:
            log.info(
                "replicas out of sync",
                topic=self.topic,
                partition=self.partition,
                replicas=sorted(late),
                end_offset=end,
                high_watermark=self.high_watermark,
            )
            self._ask(tuple(broker_id for broker_id in self.isr if broker_id not in late))

    def _ask(self, isr: tuple[int, ...]) -> None:
        # Whichever of both sets will hold, what becomes committed meanwhile is in all of it.
        self._pending_isr = tuple({*self.isr, *isr})
        remotes = self.remotes
        epochs = tuple(remotes[each].broker_epoch if each in remotes else -1 for each in isr)
        self.propose(IsrChange(self, self.leader_epoch, self.partition_epoch, isr, epochs))

    def settle(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        """Take the controller's answer to a change. False: it is to be asked again."""
        if (
            self.role is not Role.LEADER
            or self._pending_isr is None
            or change.leader_epoch != self.leader_epoch
            or change.partition_epoch != self.partition_epoch
        ):
            return True  # the controller has told something newer meanwhile
        if outcome.error is ErrorCode.NONE:
            if outcome.leader_epoch != self.leader_epoch or outcome.partition_epoch < self.partition_epoch:
                return True
            self.isr = list(outcome.isr)
            self.partition_epoch = outcome.partition_epoch
            self._pending_isr = None
            log.info("isr changed", topic=self.topic, partition=self.partition, isr=self.isr)
            self._advance_committed()
            return True
        if outcome.error in (ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED):
            self._pending_isr = None
            self._advance_committed()
            return True
        return outcome.error in _WAIT_FOR_NEWS

    def in_sync(self) -> Collection[int]:
        """All that a record has to reach before it is committed: the in-sync replicas, and those to be."""
        return self.isr if self._pending_isr is None else self._pending_isr

    def low_watermark(self) -> int:
        """The least log start offset among the replicas that are alive: what DeleteRecords waits for."""
        starts = [
            remote.start_offset
            for remote in self.remotes.values()
            if self.eligible(remote.broker_id, remote.broker_epoch)
        ]
        return min([self.log.log_start_offset, *starts])

    def delete_records(self, offset: int) -> int:
        self.check_leader()
        return super().delete_records(offset)

    def deleted(self, offset: int, timeout_ms: int) -> asyncio.Future[int] | None:
        """The future has the low watermark; it raises KafkaError as that of :meth:`committed`."""
        if self.low_watermark() >= offset:
            return None
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self._start_waiters = [each for each in self._start_waiters if not each[1].done()]
        self._start_waiters.append((offset, future))
        timer = self._clock.call_later(timeout_ms / 1000, time_out, future)
        future.add_done_callback(lambda _: timer.cancel())
        # Followers hear of the new start now, and not when their wait for data is over.
        self._answer_followers()
        return future

    def _tell_start(self) -> None:
        low = self.low_watermark()
        for offset, future in self._start_waiters:
            if offset <= low and not future.done():
                future.set_result(low)
        self._start_waiters = [each for each in self._start_waiters if not each[1].done()]

    def fail_waiters(self, code: ErrorCode) -> None:
        super().fail_waiters(code)
        waiters, self._start_waiters = self._start_waiters, []
        for _, future in waiters:
            if not future.done():
                future.set_exception(KafkaError(code))

    # ---- following

    def append_from_leader(
        self, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> asyncio.Future[None] | None:
        """Append what a fetch from the leader brought, and follow its offsets.

        The future, where there is one, is done when an fsync that was due has been made: only then may the leader be
        told that the records are here. It raises KafkaError: KAFKA_STORAGE_ERROR.

        Raises:
            KafkaError: as :meth:`ottla_broker.log.log.Log.append_as_follower`.
        """
        local = self.log
        flushed = None
        if len(records):
            end = local.log_end_offset
            if end == local.log_start_offset and len(records) >= _OFFSET_BYTES:
                first = int.from_bytes(records[:_OFFSET_BYTES], "big")
                if first < end:
                    # The leader's log starts in the middle of a batch, which comes as a whole.
                    self.restart_at(first)
            info = local.append_as_follower(records)
            self._hidden_bytes += info.size
            if info.flush_due:
                flushed = local.flushed(info.last_offset + 1)
        committed = min(high_watermark, local.log_end_offset)
        if committed > self._high_watermark:
            super()._advance(committed)
        start = min(log_start_offset, self._high_watermark)
        if start > local.log_start_offset:
            local.advance_log_start_offset(start)
        return flushed

    def truncate(self, offset: int) -> None:
        """Cut the log to ``offset``: what is behind it is not the leader's. Raises KafkaError."""
        local = self.log
        if offset < self._high_watermark:
            log.warning(
                "truncation below the high watermark",
                topic=self.topic,
                partition=self.partition,
                offset=offset,
                high_watermark=self._high_watermark,
            )
        local.truncate_to(offset)
        self._high_watermark = min(self._high_watermark, local.log_end_offset)
        self._hidden_bytes = 0

    def restart_at(self, offset: int) -> None:
        """Throw the log away and begin at ``offset``: the leader has nothing older. Raises KafkaError."""
        self.log.truncate_fully_and_start_at(offset)
        self._high_watermark = offset
        self._hidden_bytes = 0

    # ---- the end

    def answer_fetches(self) -> None:
        super().answer_fetches()
        self._answer_followers()

    def _answer_followers(self) -> None:
        for fetch in list(self.follower_fetches):
            fetch.finish()
