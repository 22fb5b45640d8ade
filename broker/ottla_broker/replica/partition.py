"""One partition on this broker, as leader, follower or neither: Kafka's ``Partition``.

A leader's high watermark is the least end offset among its own log (without what an fsync is owed for), the replicas in
sync, those that a change under way would add, and those that have caught up and are about to be added. It never goes
back within an epoch, and stays where it is while fewer replicas are in sync than ``min.insync.replicas`` (KIP-966). A
follower's high watermark is its leader's, but never beyond its own log. A broker that stands alone is the only replica
of its partitions: everything in its log is committed, except what an fsync is owed for.

What each role answers is in :data:`_REFUSALS`. A leader may also be in doubt (see :mod:`.leader_lease`): clients then
get NOT_LEADER_OR_FOLLOWER, while followers are served.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from typing import TYPE_CHECKING, Final

from ottla_broker.events import get_logger
from ottla_broker.log.heard_connections import Arrival
from ottla_broker.log.producer_state import RAISES_EPOCH
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.high_watermark import HighWatermark
from ottla_broker.replica.leadership import Leadership, LeaderState
from ottla_broker.replica.offset_waiters import OffsetWaiter, OffsetWaiters, Reached
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from collections.abc import Hashable

    from ottla_broker.log.heard_connections import ConnectionAge
    from ottla_broker.log.log import Log
    from ottla_broker.log.record_validation import Validated
    from ottla_broker.log.validator import AppendInfo
    from ottla_broker.log.verification import VerificationGuard
    from ottla_broker.replica.delayed_fetch import DelayedFetch
    from ottla_broker.replica.follower_state import FollowerState
    from ottla_broker.replica.isr import IsrChange, IsrOutcome

_log = get_logger()

NO_LEADER: Final = -1
_OFFSET_BYTES: Final = 8


class Role(Enum):
    """The role of this broker for a partition."""

    NONE = "none"
    LEADER = "leader"
    FOLLOWER = "follower"
    OFFLINE = "offline"


_NOT_LEADER: Final = ErrorCode.NOT_LEADER_OR_FOLLOWER
_OFFLINE: Final = ErrorCode.KAFKA_STORAGE_ERROR

_REFUSALS: Final[Mapping[Role, tuple[ErrorCode | None, ErrorCode | None]]] = {
    #               leader only, any replica: answers; None serves
    Role.NONE: (_NOT_LEADER, _NOT_LEADER),  # left by lead(), follow(), go_offline()
    Role.LEADER: (None, None),  # left by follow(), stop(), go_offline()
    Role.FOLLOWER: (_NOT_LEADER, None),  # left by lead(), stop(), go_offline()
    Role.OFFLINE: (_OFFLINE, _OFFLINE),  # left by a restart of the broker
}
"""What each role answers to requests that only a leader serves, and to clients that accept any replica (KIP-392)."""


def unknown_replica(knows_epoch: bool) -> KafkaError:
    """For a broker that is no replica as far as this leader knows; ``knows_epoch``: it named the leader's epoch.

    It may have heard of a reassignment earlier than this leader, so it may ask again (``followerReplicaOrThrow``).
    """
    return KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH if knows_epoch else _NOT_LEADER)


class Partition:
    """A partition that this broker has. Owned by the loop thread.

    ``log_start_offset ≤ last_stable_offset ≤ high_watermark ≤ log_end_offset`` always holds. The log opens on first
    use, so that ten thousand idle partitions cost next to nothing.

    Attributes:
        leader: the broker that leads, -1 for none.
        counts: what its topic's partitions count, for metrics.
    """

    __slots__ = (
        "_environment",
        "_follower_fetches",
        "_leadership",
        "_log",
        "_pending_flushes",
        "_watermark",
        "counts",
        "leader",
        "leader_epoch",
        "partition",
        "replicas",
        "role",
        "topic",
        "topic_id",
    )

    def __init__(self, topic: str, partition: int, topic_id: bytes, environment: ReplicaEnvironment) -> None:
        self.topic = topic
        self.partition = partition
        self.topic_id = topic_id
        self.role = Role.NONE
        self.leader = NO_LEADER
        self.leader_epoch = -1
        self.replicas: Sequence[int] = ()
        self.counts = environment.counters.topic(topic)
        self._follower_fetches: set[DelayedFetch] | None = None
        self._environment = environment
        self._leadership: Leadership | None = None
        self._log: Log | None = None
        self._watermark = HighWatermark()
        # Fsyncs under way that the high watermark waits for.
        self._pending_flushes = 0

    def __repr__(self) -> str:
        return f"<{self.topic}-{self.partition} {self.role.value} epoch {self.leader_epoch}>"

    @property
    def log(self) -> Log:
        """The log, opened if this is the first use.

        Raises KafkaError: KAFKA_STORAGE_ERROR when its files can't be read, INCONSISTENT_TOPIC_ID when they belong to
        another topic of this name.
        """
        return self._open_log() if self._log is None else self._log

    def _open_log(self) -> Log:
        logs = self._environment.logs
        log = logs.get(self.topic, self.partition)
        if log is None:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the log of {self.topic}-{self.partition} is not on this broker",
            )
        log.assign_topic_id(self.topic_id)
        log.open()
        # What the last run of the broker knew to be committed; a leader may have the rest truncated.
        checkpointed = logs.high_watermark(self.topic, self.partition) or 0
        self._watermark.offset = min(max(log.log_start_offset, checkpointed), log.log_end_offset)
        self._use(log)
        if self._leadership is not None:
            self._begin_epoch(log, self._leadership)
            self._advance_high_watermark()
        return log

    def replace_log(self, log: Log) -> None:
        """Go on with an identical log: the partition's in another data folder."""
        self._use(log)

    def _use(self, log: Log) -> None:
        self._log = log
        self._watermark.use(log)

    def _begin_epoch(self, log: Log, leadership: Leadership) -> None:
        end = log.log_end_offset
        log.epochs.assign(self.leader_epoch, end)
        leadership.begin_epoch(end)

    @property
    def is_open(self) -> bool:
        """Whether the log has been needed yet."""
        return self._log is not None

    @property
    def high_watermark(self) -> int:
        """The first offset that is not committed."""
        if self._log is None:
            self._open_log()
        return self._watermark.offset

    @property
    def last_stable_offset(self) -> int:
        """The first offset that a read_committed consumer must not see: there may be an undecided transaction."""
        if self._log is None:
            self._open_log()
        return self._watermark.last_stable_offset

    @property
    def epoch_start(self) -> int:
        """The offset that the high watermark must reach before a new leader knows the committed end (KIP-207)."""
        return 0 if self._leadership is None else self._leadership.epoch_start

    @property
    def isr(self) -> Collection[int]:
        """The in-sync replicas that the controller has agreed to; a follower doesn't know them."""
        return () if self._leadership is None else self._leadership.isr

    @property
    def followers(self) -> Mapping[int, FollowerState]:
        """The other replicas by broker, while this broker leads."""
        return {} if self._leadership is None else self._leadership.followers

    @property
    def min_insync_replicas(self) -> int:
        """The number of replicas that must be in sync for acks=all: at most as many as the partition has."""
        return min(self.log.config.min_insync_replicas, max(1, len(self.replicas)))

    def is_under_min_isr(self) -> bool:
        """Whether fewer replicas are in sync than acks=all needs. Raises KafkaError: this broker doesn't lead."""
        in_sync = len((self._leadership or self._led()).isr)
        log = self._log or self._open_log()
        return in_sync < log.config.min_insync_replicas and in_sync < max(1, len(self.replicas))

    def lead(self, state: LeaderState, *, open_log: bool = True) -> bool:
        """Become the leader, or adopt a new state as leader; True in a new epoch.

        Without ``open_log`` a log that hasn't been used stays closed until it is. Raises KafkaError:
        KAFKA_STORAGE_ERROR; the partition is as it was.
        """
        is_new_epoch = state.leader_epoch > self.leader_epoch or self.role is not Role.LEADER
        log = self._usable_log() if open_log else self._log
        self._adopt(state)
        self.role = Role.LEADER
        leadership = self._leadership
        if leadership is None:
            leadership = self._leadership = Leadership(self._environment, self)
        leadership.update(state)
        if log is None:
            return is_new_epoch
        if is_new_epoch:
            self._begin_epoch(log, leadership)
            # Fetches that wait here belong to another epoch, or were sent to a follower.
            self.answer_fetches()
        self._advance_high_watermark()
        return is_new_epoch

    def follow(self, state: LeaderState) -> bool:
        """Become a follower, or adopt a new state as one; True for another leader or a new epoch.

        Raises KafkaError: KAFKA_STORAGE_ERROR; the partition is as it was.
        """
        is_new = self.role is not Role.FOLLOWER or state.leader_epoch > self.leader_epoch
        self._usable_log()
        self._adopt(state)
        if is_new:
            self._leave(Role.FOLLOWER, _NOT_LEADER)
        return is_new

    def go_offline(self) -> None:
        """Serve nothing until the broker restarts: the disk has failed."""
        self._leave(Role.OFFLINE, _OFFLINE)

    def stop(self) -> None:
        """Serve the partition no longer; all that wait are answered."""
        self._leave(self.role if self.role is Role.OFFLINE else Role.NONE, _NOT_LEADER)

    def _leave(self, role: Role, code: ErrorCode) -> None:
        """Give up leadership and answer all that wait for this broker as leader."""
        leadership, self._leadership = self._leadership, None
        self.role = role
        self._fail(leadership, code)
        self.answer_fetches()

    def _adopt(self, state: LeaderState) -> None:
        self.leader = state.leader
        self.leader_epoch = state.leader_epoch
        self.replicas = state.replicas

    def _usable_log(self) -> Log:
        """The log. Raises KafkaError: KAFKA_STORAGE_ERROR, also when it or its disk has failed."""
        log = self.log
        if log.failure is not None or self.role is Role.OFFLINE:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, log.failure)
        return log

    def _led(self) -> Leadership:
        """Return what is known as the leader. Raises KafkaError unless this broker leads the partition."""
        if self._leadership is None:
            raise KafkaError(_REFUSALS[self.role][0] or _NOT_LEADER)
        return self._leadership

    def check_leader(self) -> None:
        """Raise KafkaError unless this broker leads the partition and no other broker may do so by now."""
        leadership = self._leadership
        if leadership is None:
            leadership = self._led()
        until = self._environment.leader_lease.lease.until
        if until != inf:
            now = self._environment.clock.monotonic()
            if now >= until and not leadership.is_followed(now):
                raise KafkaError(_NOT_LEADER)

    @property
    def is_led_here(self) -> bool:
        """Whether :meth:`check_leader` passes."""
        try:
            self.check_leader()
        except KafkaError:
            return False
        return True

    def check_readable(self, current_leader_epoch: int, any_replica: bool) -> None:
        """Raise KafkaError unless a client that knows of an epoch may read here.

        ``any_replica``: the client accepts a follower too (KIP-392). Errors as in :meth:`check_epoch`.
        """
        if current_leader_epoch != self.leader_epoch:
            self.check_epoch(current_leader_epoch)
        if any_replica and self._leadership is None:
            code = _REFUSALS[self.role][1]
            if code is not None:
                raise KafkaError(code)
        else:
            self.check_leader()

    def check_epoch(self, current_leader_epoch: int) -> None:
        """Compare the leader epoch that a client knows with the current one; -1 is not compared (KIP-320).

        Raises KafkaError: FENCED_LEADER_EPOCH or UNKNOWN_LEADER_EPOCH.
        """
        if current_leader_epoch < 0 or current_leader_epoch == self.leader_epoch:
            return
        if current_leader_epoch < self.leader_epoch:
            raise KafkaError(ErrorCode.FENCED_LEADER_EPOCH)
        raise KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH)

    def append(
        self, records: memoryview | Validated, now_ms: int, guard: VerificationGuard | None = None
    ) -> AppendInfo:
        """Append a producer's batch; a transactional one needs a guard. See :meth:`begin_verification`.

        Raises KafkaError: as :meth:`.Log.append`, or this broker doesn't lead.
        """
        self.counts.produce_requests += 1
        self.check_leader()
        info = (self._log or self._open_log()).append(
            records, leader_epoch=self.leader_epoch, now_ms=now_ms, from_client=True, guard=guard
        )
        if not info.duplicate:
            self._appended(info)
        return info

    def hear(self, producer_id: int, epoch: int, connection: ConnectionAge, request: Hashable) -> Arrival:
        """Tell whether a transactional producer's request is late; see :meth:`.ProducerStates.hear`."""
        try:
            self.check_leader()
            producers = self.log.producers
        except KafkaError:
            return Arrival.TIMELY  # The caller refuses the request for that.
        return producers.hear(producer_id, epoch, connection, request)

    def hear_marker(self, producer_id: int, coordinator_epoch: int, connection: ConnectionAge) -> Arrival:
        """Tell whether a coordinator's marker is late; see :meth:`.ProducerStates.hear_marker`."""
        try:
            self.check_leader()
            producers = self.log.producers
        except KafkaError:
            return Arrival.TIMELY  # The caller refuses the request for that.
        return producers.hear_marker(producer_id, coordinator_epoch, connection)

    def hear_from_now(self) -> None:
        """What was sent before now may be late. Raises KafkaError: KAFKA_STORAGE_ERROR."""
        self.log.producers.hear_from_now()

    def begin_verification(
        self, producer_id: int, sequence: int, epoch: int, now_ms: int, *, adds: bool = False
    ) -> VerificationGuard | None:
        """The guard under which a transactional batch has to be verified; None: it begins no transaction.

        With ``adds`` the producer is of transaction version 2. Each of its epochs begins at sequence 0, so no other
        batch may come first if none is written.

        Raises KafkaError: this broker doesn't lead.
        """
        self.check_leader()
        producers = self.log.producers
        if not producers.needs_verification(producer_id, epoch):
            return None
        if adds and not producers.has_written(producer_id):
            sequence = 0
        return producers.verifications.begin(producer_id, sequence, epoch, now_ms)

    def append_internal(self, records: bytearray, now_ms: int, guard: VerificationGuard | None = None) -> int:
        """Append a coordinator's own records, which all in-sync replicas must get; returns the offset after them.

        With a ``guard`` they may begin a producer's transaction only if it was verified: see
        :meth:`begin_verification`. Raises KafkaError: as :meth:`append`; NOT_ENOUGH_REPLICAS.
        """
        self.check_leader()
        if self.is_under_min_isr():
            raise KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS)
        info = self.log.append(
            memoryview(records),
            leader_epoch=self.leader_epoch,
            now_ms=now_ms,
            from_client=False,
            guard=guard,
        )
        self._appended(info)
        return info.last_offset + 1

    def append_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        commit: bool,
        now_ms: int,
        transaction_version: int = 0,
    ) -> int:
        """Append the marker that commits or aborts a producer's transaction; returns the offset after it.

        It is in effect when it is committed: see :meth:`when_committed`. Raises KafkaError: INVALID_PRODUCER_EPOCH or
        TRANSACTION_COORDINATOR_FENCED where a newer transaction or coordinator has been here; otherwise as
        :meth:`append_internal`.
        """
        # Imported here because few brokers have transactions.
        from ottla_protocol.records.control import encode_transaction_marker

        if transaction_version >= RAISES_EPOCH:
            self.log.producers.check_raise(producer_id, producer_epoch)
        marker = encode_transaction_marker(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        return self.append_internal(marker, now_ms)

    def _appended(self, info: AppendInfo) -> None:
        self._watermark.appended(info.size)
        end = info.last_offset + 1
        counts = self.counts
        counts.bytes_in += info.size
        counts.messages_in += end - info.first_offset
        if info.flush_due:
            flushed = self.log.flushed(end)
            self._pending_flushes += 1
            flushed.add_done_callback(lambda future: self._on_flushed(end, future))
        elif not self._pending_flushes:
            leadership = self._leadership or self._led()
            leadership.own_end = end
            if leadership.followers:
                self._advance_high_watermark()
            else:
                self._watermark.move_to(end)
        if self._follower_fetches:
            for fetch in list(self._follower_fetches):
                fetch.grow(info.size)

    def _on_flushed(self, end: int, future: asyncio.Future[None]) -> None:
        self._pending_flushes -= 1
        if future.cancelled() or future.exception() is not None:
            # The log is out of service from now on: callers that wait for this write must learn of it.
            self.fail_waiters(ErrorCode.KAFKA_STORAGE_ERROR)
            self.answer_fetches()
            return
        leadership = self._leadership
        if leadership is not None:
            log_end = self.log.log_end_offset
            # An fsync that began before a truncation may cover records that are gone.
            flushed = min(end, log_end) if self._pending_flushes else log_end
            leadership.own_end = max(leadership.own_end, flushed)
            self._advance_high_watermark()

    def _advance_high_watermark(self) -> None:
        """Move the leader's high watermark as far as the replicas have come."""
        leadership = self._leadership
        if leadership is None:
            return
        if not leadership.followers:
            self._watermark.move_to(leadership.own_end)
        elif len(leadership.isr) >= self.min_insync_replicas:
            log_end = self.log.log_end_offset
            self._watermark.move_to(leadership.committed_offset(self._watermark.offset, log_end))

    def is_committed(self, end_offset: int) -> bool:
        """Whether all in-sync replicas have everything below ``end_offset``."""
        return end_offset <= self.high_watermark

    def when_committed(self, end_offset: int, callback: Reached) -> OffsetWaiter | None:
        """Have ``callback`` called when everything below ``end_offset`` is committed; None: it is.

        Errors: NOT_LEADER_OR_FOLLOWER when the partition moves away, KAFKA_STORAGE_ERROR when its disk fails.
        """
        if self.is_committed(end_offset):
            return None
        return self._watermark.wait(end_offset, callback)

    def fail_waiters(self, code: ErrorCode) -> None:
        """Have all that wait, except fetches, end with an error."""
        self._fail(self._leadership, code)

    def _fail(self, leadership: Leadership | None, code: ErrorCode) -> None:
        self._watermark.fail(code)
        if leadership is not None and leadership.log_start_waiters:
            leadership.log_start_waiters.fail(code)

    def fetched_by(
        self, broker_id: int, offset: int, start_offset: int, broker_epoch: int, sent_after: float = inf
    ) -> None:
        """Record a follower's fetch from ``offset``: it has all below. Kafka's ``updateFollowerFetchState``.

        ``sent_after``: a time, on the monotonic clock, at which the fetch wasn't sent yet.

        Raises KafkaError: as :meth:`follower`; NOT_LEADER_OR_FOLLOWER for a fetch sent before that broker last
        registered.
        """
        follower = self.follower(broker_id)
        if 0 <= broker_epoch < follower.broker_epoch:
            raise KafkaError(_NOT_LEADER)
        leadership = self._led()
        end = self.log.log_end_offset
        before, start_before = follower.end_offset, follower.start_offset
        now = self._environment.clock.monotonic()
        follower.fetched(offset, start_offset, end, now, broker_epoch, sent_after)
        if broker_id not in leadership.isr:
            leadership.add_caught_up(follower, self.high_watermark, self.on_isr_answer)
        elif offset < self._watermark.offset:
            leadership.remove_lossy(follower, self._watermark.offset, self.on_isr_answer)
        if offset != before or self._watermark.is_awaited:
            # Another follower that was waited for may no longer count.
            self._advance_high_watermark()
        if start_offset != start_before:
            self._wake_log_start_waiters()

    def has_nothing_for(
        self,
        broker_id: int,
        broker_epoch: int,
        leader_epoch: int,
        offset: int,
        start_offset: int,
        sent_after: float | None,
    ) -> bool:
        """Whether a fetch only repeats what is known: an in-sync follower is at the log's end, which is committed.

        It is then recorded, unless ``sent_after`` is None, because it was before. False: it needs a closer look.
        """
        leadership = self._leadership
        if leadership is None or leader_epoch != self.leader_epoch or self._watermark.offset != offset:
            return False
        log, follower = self._log, leadership.followers.get(broker_id)
        if (
            log is None
            or follower is None
            or follower.end_offset != offset
            or follower.start_offset != start_offset
            or follower.broker_epoch != broker_epoch
            or log.log_end_offset != offset
            or broker_id not in leadership.isr
        ):
            return False
        if sent_after is not None:
            follower.fetched_again(self._environment.clock.monotonic(), sent_after)
        return True

    def follower(self, broker_id: int, knows_epoch: bool = True) -> FollowerState:
        """Return what is known of a follower. Raises KafkaError as :func:`unknown_replica`, or if it isn't led here."""
        follower = self._led().followers.get(broker_id)
        if follower is None:
            raise unknown_replica(knows_epoch)
        return follower

    def brokers_changed(self) -> None:
        """Brokers have come or gone: those that have gone are no longer waited for."""
        self._advance_high_watermark()
        self._wake_log_start_waiters()

    def remove_lagging(self) -> None:
        """Propose to remove in-sync replicas that haven't caught up for too long. To be called from time to time."""
        self.brokers_changed()
        if self._leadership is not None:
            self._leadership.remove_lagging(self.log.log_end_offset, self.high_watermark, self.on_isr_answer)

    def on_isr_answer(self, change: IsrChange, outcome: IsrOutcome) -> bool:
        """Apply the controller's answer to a change; False: the controller must be asked again."""
        if self._leadership is None:
            return True
        is_final = self._leadership.on_isr_answer(change, outcome)
        self._advance_high_watermark()
        return is_final

    def scan(self, start_offset: int) -> Iterator[memoryview]:
        """Whole batches from ``start_offset`` to the log's end, in chunks: for a coordinator that loads.

        It doesn't stop at the high watermark, because a new leader's may be behind what the old one acknowledged, and
        all that a leader has when it begins to lead stays.
        """
        log = self.log
        return log.reader.scan_batches(max(start_offset, log.log_start_offset))

    def delete_records(self, offset: int) -> int:
        """Make ``offset`` the first one (-1: the high watermark); returns the new log start offset.

        Raises KafkaError: OFFSET_OUT_OF_RANGE, POLICY_VIOLATION for a topic without the delete policy, or this broker
        doesn't lead.
        """
        self.check_leader()
        log = self.log
        if not log.config.delete:
            raise KafkaError(
                ErrorCode.POLICY_VIOLATION,
                f"{self.topic} is compacted only: its records can't be deleted by offset",
            )
        high_watermark = self.high_watermark
        target = high_watermark if offset == -1 else offset
        if not 0 <= target <= high_watermark:
            raise KafkaError(ErrorCode.OFFSET_OUT_OF_RANGE)
        if target > log.log_start_offset:
            log.advance_log_start_offset(target)
        return log.log_start_offset

    def is_deleted(self, offset: int) -> bool:
        """Whether the logs of all replicas that are alive begin at ``offset`` or later. Raises KafkaError."""
        return self._led().low_watermark(self.log.log_start_offset) >= offset

    def when_deleted(self, offset: int, callback: Reached) -> OffsetWaiter | None:
        """Have ``callback`` called with the low watermark when all replicas that are alive begin at ``offset``.

        None: they do. Errors as for :meth:`when_committed`. Raises KafkaError.
        """
        if self.is_deleted(offset):
            return None
        leadership = self._led()
        waiters = leadership.log_start_waiters
        if waiters is None:
            waiters = leadership.log_start_waiters = OffsetWaiters()
        waiter = waiters.wait(offset, callback)
        # Followers learn of the new start now, and not when their wait for data is over.
        self._answer_followers()
        return waiter

    def _wake_log_start_waiters(self) -> None:
        leadership = self._leadership
        if leadership is not None and leadership.log_start_waiters:
            leadership.log_start_waiters.reach(leadership.low_watermark(self.log.log_start_offset))

    def append_from_leader(
        self, records: memoryview, high_watermark: int, log_start_offset: int
    ) -> asyncio.Future[None] | None:
        """Append what a fetch from the leader brought, and follow its offsets.

        The future, where one is returned, is done when an fsync that was due has been made: only then may the next
        fetch acknowledge the records. It raises KafkaError: KAFKA_STORAGE_ERROR. Raises KafkaError: as
        :meth:`ottla_broker.log.log.Log.append_as_follower`.
        """
        log = self.log
        flushed = None
        if len(records):
            end = log.log_end_offset
            if end == log.log_start_offset and len(records) >= _OFFSET_BYTES:
                first = int.from_bytes(records[:_OFFSET_BYTES], "big")
                if first < end:
                    # The leader's log starts in the middle of a batch, which is sent as a whole.
                    self.restart_at(first)
            info = log.append_as_follower(records)
            self._watermark.appended(info.size)
            self._environment.counters.replication_bytes_in += info.size
            if info.flush_due:
                flushed = log.flushed(info.last_offset + 1)
        self._watermark.move_to(min(high_watermark, log.log_end_offset))
        start = min(log_start_offset, self._watermark.offset)
        if start > log.log_start_offset:
            log.advance_log_start_offset(start)
        return flushed

    def truncate(self, offset: int) -> None:
        """Truncate the log to ``offset``: the leader doesn't have the records from there on. Raises KafkaError."""
        log = self.log
        if offset < self._watermark.offset:
            _log.warning(
                "truncation below the high watermark",
                topic=self.topic,
                partition=self.partition,
                offset=offset,
                high_watermark=self._watermark.offset,
            )
        log.truncate_to(offset)
        self._watermark.truncated_to(log.log_end_offset)

    def restart_at(self, offset: int) -> None:
        """Drop all records and begin at ``offset``: the leader has nothing older. Raises KafkaError."""
        self.log.truncate_fully_and_start_at(offset)
        self._watermark.restarted_at(offset)

    @property
    def waiting(self) -> tuple[int, int]:
        """The number of offsets that others than fetches wait for, and the number of fetches that wait."""
        writers, fetches = self._watermark.waiting
        return writers, fetches + len(self._follower_fetches or ())

    @property
    def fetches(self) -> set[DelayedFetch]:
        """Fetches of consumers that wait for the high watermark."""
        return self._watermark.fetches

    @property
    def committed_fetches(self) -> set[DelayedFetch]:
        """Fetches of consumers that wait for the last stable offset."""
        return self._watermark.committed_fetches

    @property
    def follower_fetches(self) -> set[DelayedFetch]:
        """Fetches of followers that wait for the log's end."""
        if self._follower_fetches is None:
            self._follower_fetches = set()
        return self._follower_fetches

    def answer_fetches(self) -> None:
        """Have fetches that wait answered with what they find."""
        self._watermark.answer_fetches()
        self._answer_followers()

    def _answer_followers(self) -> None:
        for fetch in list(self._follower_fetches or ()):
            fetch.finish()
