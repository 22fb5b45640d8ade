"""One group's view of one partition, at the partition's leader: acquires, acknowledges, and persists what is done.

Life::

    LOADING --state read------------------------------------------------> ACTIVE
    LOADING, ACTIVE --leadership lost, a write failed, or not needed----> CLOSED

A change is applied in memory and then written, all changes of a turn of the event loop together, with one write under
way at a time; acknowledgements are answered when their write is committed. If a write fails, memory and log differ, so
the share partition closes: the next fetch reads the state again. What was acquired meanwhile is then available again.

No record is looked at: batches' headers say which offsets a fetch found.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol

from ottla_broker.clock import Clock
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.share.in_flight import Acknowledgement, Batch, InFlight
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.settings import EARLIEST, LATEST, SettingsOf
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.events import get_logger
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.formats import iter_any_headers

if TYPE_CHECKING:
    from ottla_broker.log.txn_index import AbortedTransaction
    from ottla_protocol.records.batch import BatchHeader

_log = get_logger()

_MOST_BYTES: Final = 4 << 20
"""What one fetch reads of a partition at most, unless its first batch is larger."""
_SEVERAL: Final = 8
"""How many reads a fetch makes if it finds only aborted records."""


class Life(Enum):
    """See the diagram above."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class Waiter(Protocol):
    """A fetch that waits for records."""

    def finish(self) -> None: ...


@dataclass(eq=False, slots=True)
class AcquisitionLock(Deadline):
    """What one fetch acquired: when it times out, what is left of it is released."""

    member_id: str
    partition: SharePartition


class Acquired(NamedTuple):
    """What a fetch brought: whole batches, and which of their offsets the member has."""

    records: bytes | memoryview
    batches: list[Batch]


class SharePartition:
    """Owned by the loop thread.

    Attributes:
        waiters: fetches to wake when something becomes available.
        users: the share sessions that contain it.
    """

    def __init__(
        self,
        key: ShareKey,
        partition: Partition,
        persister: Persister,
        settings_of: SettingsOf,
        clock: Clock,
        locks: Deadlines,
        closed: Callable[[SharePartition], None],
    ) -> None:
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.life = Life.LOADING
        self.error: KafkaError | None = None
        self.waiters: set[Waiter] = set()
        self.users: set[object] = set()
        self.in_flight: InFlight[AcquisitionLock] = InFlight(0)
        self._persister = persister
        self._settings_of = settings_of
        self._clock = clock
        self._locks = locks
        self._closed = closed
        self._state_epoch = 0
        self._changes: list[Batch] = []
        self._replies: list[Callable[[KafkaError | None], None]] = []
        self._writing = False

    # Life

    def load(self) -> None:
        self._persister.read(self.key, self.leader_epoch, self._loaded)

    def _loaded(self, answer: ShareState | KafkaError) -> None:
        if self.life is not Life.LOADING:
            return
        if isinstance(answer, KafkaError):
            self.close(answer)
            return
        self._state_epoch = answer.epoch
        try:
            start = self._first_offset() if answer.start < 0 else answer.start
        except KafkaError as error:
            self.close(error)
            return
        self.in_flight = InFlight(start, answer.batches)
        self.life = Life.ACTIVE
        if answer.start < 0:
            # Persisted now: by the next leader, "latest" would be another offset.
            self._persist([], lambda _: None)
        self.wake()

    def _first_offset(self) -> int:
        """Where a new group starts (``share.auto.offset.reset``). Raises KafkaError."""
        reset = self._settings_of(self.key.group_id).offset_reset
        partition = self.partition
        if reset == EARLIEST:
            return partition.log.log_start_offset
        if reset != LATEST:
            assert isinstance(reset, int)
            found = partition.log.reader.offset_for_timestamp(self._clock.now_ms() - reset)
            if found is not None:
                return min(found[0], partition.high_watermark)
        return partition.high_watermark

    def close(self, error: KafkaError) -> None:
        """Serve nothing any more; what waits gets ``error``."""
        if self.life is Life.CLOSED:
            return
        if self.life is Life.ACTIVE and error.code not in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER):
            _log.warning(
                "share partition closed",
                group=self.key.group_id,
                topic=self.partition.topic,
                partition=self.key.partition,
                error=error.code.name,
                reason=error.message,
            )
        self.life = Life.CLOSED
        self.error = error
        for run in self.in_flight:
            if run.lock is not None:
                self._locks.clear(run.lock)
        replies, self._replies = self._replies, []
        self._changes = []
        self._closed(self)
        for reply in replies:
            reply(error)
        self.wake()

    def wake(self) -> None:
        for waiter in list(self.waiters):
            waiter.finish()

    @property
    def is_idle(self) -> bool:
        """Whether nothing is under way, and no session needs it."""
        return not self.users and not self._writing and not self._replies and not self._changes

    # Fetching

    def fetch(self, member_id: str, most_records: int, most_bytes: int, exact: bool) -> Acquired | None:
        """Acquire records for a member; None while there are none.

        ``exact``: not one record more than ``most_records``; otherwise the last batch is acquired whole (KIP-1206).
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, or the log's.
        """
        if self.life is Life.LOADING:
            return None
        if self.life is Life.CLOSED:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        partition = self.partition
        partition.check_leader()
        settings = self._settings_of(self.key.group_id)
        log = partition.log
        in_flight = self.in_flight
        if in_flight.begin_at(log.log_start_offset) or in_flight.end_at(
            max(log.log_end_offset, log.log_start_offset)
        ):
            self._persist([], lambda _: None)
        limit = partition.last_stable_offset if settings.read_committed else partition.high_watermark
        for _ in range(_SEVERAL):
            offset = in_flight.next_offset(settings.most_locks)
            if offset is None or offset >= limit:
                return None
            found = log.reader.read(offset, min(most_bytes, _MOST_BYTES), max_offset=limit, min_one=True)
            if found is None:
                return None
            aborted = log.reader.aborted(offset, found, limit) if settings.read_committed else ()
            try:
                data = found.read()
                headers = list(iter_any_headers(data))
            except (CorruptRecordError, OSError) as error:
                raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
            if not headers:
                return None
            if aborted:
                self._archive_aborted([header for _, header in headers], aborted, offset)
            last = min(headers[-1][1].last_offset, limit - 1)
            ranges = in_flight.available(offset, min(last, in_flight.start + settings.most_locks - 1))
            ranges = _first_records(ranges, most_records, None if exact else [h for _, h in headers])
            if ranges:
                return self._acquire(member_id, ranges, data, headers, settings.lock_ms)
            if in_flight.next_offset(settings.most_locks) == offset:
                return None  # Too far ahead of the start: the same would be read again.
        return None

    def _acquire(
        self,
        member_id: str,
        ranges: list[tuple[int, int]],
        data: bytes,
        headers: list[tuple[int, BatchHeader]],
        lock_ms: int,
    ) -> Acquired:
        lock = AcquisitionLock(member_id, self)
        batches = self.in_flight.acquire(ranges, lock)
        self._locks.set(lock, lock_ms / 1000)
        first, last = ranges[0][0], ranges[-1][1]
        begin, end = len(data), 0
        for position, header in headers:
            if header.last_offset >= first and header.base_offset <= last:
                begin = min(begin, position)
                end = position + int.from_bytes(data[position + 8 : position + 12], "big") + 12
        return Acquired(memoryview(data)[begin:end] if begin < end else b"", batches)

    def _archive_aborted(
        self, headers: Sequence[BatchHeader], aborted: Sequence[AbortedTransaction], offset: int
    ) -> None:
        """Archive the batches of aborted transactions from ``offset`` on."""
        spans_of: dict[int, list[tuple[int, int]]] = {}
        for each in aborted:
            spans_of.setdefault(each.producer_id, []).append((each.first_offset, each.last_offset))
        changed: list[Batch] = []
        for header in headers:
            if header.last_offset < offset or not header.is_transactional or header.is_control:
                continue
            spans = spans_of.get(header.producer_id, ())
            if any(first <= header.base_offset <= last for first, last in spans):
                changed += self.in_flight.archive(max(header.base_offset, offset), header.last_offset)
        if changed:
            self._persist(changed, lambda _: None)

    # Acknowledging

    def acknowledge(
        self,
        member_id: str,
        batches: Sequence[Acknowledgement],
        reply: Callable[[KafkaError | None], None],
    ) -> None:
        """Apply acknowledgements; ``reply`` is called when they are persisted, or refused."""
        if self.life is not Life.ACTIVE or not self.partition.is_led_here:
            reply(KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER))
            return
        settings = self._settings_of(self.key.group_id)
        renewed = AcquisitionLock(member_id, self)
        try:
            changed = self.in_flight.acknowledge(batches, member_id, settings.most_deliveries, renewed)
        except KafkaError as error:
            reply(error)
            return
        if any(run.lock is renewed for run in self.in_flight):
            self._locks.set(renewed, settings.lock_ms / 1000)
        if not changed:
            reply(None)
            return
        self._persist(changed, reply)
        self.wake()

    def release(self, member_id: str) -> None:
        """A member's session is over: what it has acquired is available again."""
        self._release(lambda lock: lock.member_id == member_id)

    def lock_timed_out(self, lock: AcquisitionLock) -> None:
        self._release(lambda each: each is lock)

    def _release(self, lost: Callable[[AcquisitionLock], bool]) -> None:
        if self.life is not Life.ACTIVE:
            return
        changed = self.in_flight.release(lost, self._settings_of(self.key.group_id).most_deliveries)
        if changed:
            self._persist(changed, lambda _: None)
            self.wake()

    # Persisting

    def _persist(self, changed: Sequence[Batch], reply: Callable[[KafkaError | None], None]) -> None:
        if not self._writing and not self._replies:
            self._clock.call_later(0, self._write)
        self._changes += changed
        self._replies.append(reply)

    def _write(self) -> None:
        if self.life is not Life.ACTIVE or self._writing or not self._replies:
            return
        changes, self._changes = self._changes, []
        replies, self._replies = self._replies, []
        self._writing = True
        in_flight = self.in_flight

        def written(error: KafkaError | None) -> None:
            self._writing = False
            if error is not None:
                self.close(error)
            for reply in replies:
                reply(error)
            self._write()
            if self.is_idle:
                self.close(KafkaError(ErrorCode.NONE))

        self._persister.write(
            self.key,
            self._state_epoch,
            self.leader_epoch,
            in_flight.start,
            in_flight.completed(),
            [batch for batch in changes if batch.last >= in_flight.start],
            written,
        )

    def left_by(self, user: object) -> None:
        """A session no longer contains it; without any, it closes when all is written."""
        self.users.discard(user)
        if self.is_idle:
            self.close(KafkaError(ErrorCode.NONE))


def _first_records(
    ranges: list[tuple[int, int]], most: int, whole: Sequence[BatchHeader] | None
) -> list[tuple[int, int]]:
    """The first ``most`` offsets of ``ranges``; with ``whole``, to the end of the last one's batch."""
    result: list[tuple[int, int]] = []
    for first, last in ranges:
        size = last - first + 1
        if size < most:
            result.append((first, last))
            most -= size
            continue
        end = first + most - 1
        if whole is not None:
            end = next((each.last_offset for each in whole if each.last_offset >= end), end)
        result.append((first, min(last, end)))
        break
    return result
