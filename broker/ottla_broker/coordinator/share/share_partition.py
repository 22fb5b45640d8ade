"""One group's view of one partition, at the partition's leader: acquires, acknowledges, and persists what is done.

Life::

    LOADING --state read, and the start written if it had none-----------> ACTIVE
    LOADING, ACTIVE --leadership lost, a write failed, or not needed----> CLOSED

A change is applied in memory and then written, all changes of a turn of the event loop together, with one write under
way at a time; acknowledgements are answered when their write is committed. If a write fails, memory and log differ, so
the share partition closes: the next fetch reads the state again. What was acquired meanwhile is then available again.

No record is looked at: batches' headers say which offsets a fetch found. Only in a group whose records are ordered by
key are keys read, ahead of the fetches (:mod:`.key_reader`).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Generator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from itertools import count
from typing import Final, NamedTuple, Protocol

from ottla_broker.clock import Clock
from ottla_broker.config.group_configs import EARLIEST, LATEST, ShareSettings
from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.share.fetched import Fetched, batches_with, find_batches
from ottla_broker.coordinator.share.in_flight import Acknowledgement, Batch, InFlight
from ottla_broker.coordinator.share.key_order import KeyOrder, Ranges
from ottla_broker.coordinator.share.key_reader import KeyReader, Run
from ottla_broker.coordinator.share.persister import Persister
from ottla_broker.coordinator.share.settings import SettingsOf
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState, StateChange
from ottla_broker.coordinator.share.states import Acknowledge
from ottla_broker.coordinator.share.tally import DeliveryTally
from ottla_broker.events import get_logger
from ottla_broker.log.files import FileSlice
from ottla_broker.log.txn_index import AbortedTransaction
from ottla_broker.replica.partition import Partition
from ottla_broker.tasks import in_slices
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import BatchHeader

_log = get_logger()

_MOST_BYTES: Final = 4 << 20
"""What one fetch reads of a partition at most, unless its first batch is larger."""
_MOST_BYTES_IN_ORDER: Final = 512 * 1024
"""The same where records are ordered by key: those of a fetch lie apart, and what lies between isn't sent."""
_MOST_BATCHES: Final = 1_000
"""How many batches of a partition one turn of the event loop looks at: about five milliseconds."""
_RUNS_A_BATCH: Final = 32
"""Looking for an available run among so many takes about as long as looking at a batch."""
_OFFSETS_A_BATCH: Final = 32
"""Choosing among so many offsets by their keys takes about as long as looking at a batch."""
_COPIED_A_BATCH: Final = 8 * 1024
"""Copying so many bytes takes less time than looking at a batch."""
_OPENED: Final = 50
_SLICE: Final = 100
"""The work of opening a log, and of one slice of a search in it."""
_SHOWN: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)
"""Errors of the state that a fetch answers as they are. Java's share consumer fails for good with other codes."""
_FENCED: Final = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.FENCED_STATE_EPOCH})
_NO_COORDINATOR: Final = frozenset({ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS})


Work = Generator[int, None, None]
"""Yields how much it has done: one takes some microseconds."""
InTurns = Callable[[Work], None]


class Life(Enum):
    """See the diagram above."""

    LOADING = "loading"
    ACTIVE = "active"
    CLOSED = "closed"


class User(Protocol):
    """A share session that contains a share partition."""

    def forget(self, share: SharePartition) -> None:
        """It has closed."""


class Waiter(Protocol):
    """A fetch that waits for records."""

    def finish(self) -> None: ...


lock_numbers: Final = count()


@dataclass(eq=False, slots=True)
class AcquisitionLock(Deadline):
    """The records that one fetch acquired: when it times out, what is left of it is released.

    Attributes:
        number: rises with each lock.
    """

    member_id: str
    partition: SharePartition
    number: int = field(default_factory=lock_numbers.__next__, init=False)


class Acquired(NamedTuple):
    """The outcome of a fetch: whole batches, and which of their offsets the member has."""

    records: Fetched
    batches: list[Batch]


class Tried(NamedTuple):
    """The outcome of a turn of a fetch.

    Attributes:
        acquired: None if there was nothing.
        work: the batches that were looked at, and bytes that were copied, in batches.
        unfinished: there may be something behind them.
    """

    acquired: Acquired | None
    work: int = 0
    unfinished: bool = False


_NOTHING: Final = Tried(None)


class SharePartition:
    """Owned by the loop thread.

    Attributes:
        failure: why its state couldn't be read, for the fetches that wait for it.
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
        run: Run,
        in_turns: InTurns,
        tally: DeliveryTally,
    ) -> None:
        """``run`` runs a function on a thread, ``in_turns`` work on the loop; ``tally`` counts for the whole group."""
        self.key = key
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.life = Life.LOADING
        self.failure: KafkaError | None = None
        self.waiters: set[Waiter] = set()
        self.users: set[User] = set()
        self.in_flight: InFlight[AcquisitionLock] = InFlight(0)
        self._persister = persister
        self._settings_of = settings_of
        self._clock = clock
        self._locks = locks
        self._closed = closed
        self._run = run
        self._in_turns = in_turns
        self._tally = tally
        self._keys: KeyReader | None = None
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
        if answer.start >= 0:
            self.in_flight = InFlight(answer.start, answer.batches)
            self._begin()
        else:
            # The states of thousands of partitions may come at once, and their logs may be closed.
            self._in_turns(self._start(answer))

    def _start(self, answer: ShareState) -> Work:
        """Begin where a new group does."""
        try:
            start = yield from self._first_offset()
        except KafkaError as error:
            self.close(error)
            return
        except Exception as error:
            # A defect, which must not hold up others that begin.
            _log.exception(
                "a share partition can't begin", group=self.key.group_id, topic=self.partition.topic
            )
            self.close(KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, str(error)))
            return
        if self.life is not Life.LOADING:
            return
        self.in_flight = InFlight(start, answer.batches)

        def written(error: KafkaError | None) -> None:
            if self.life is not Life.LOADING:
                return
            if error is None:
                self._begin()
            else:
                self.close(error)

        # Before anything is handed out: to the next leader, "latest" would be another offset.
        completed = self.in_flight.completed()
        change = StateChange(answer.epoch, self.leader_epoch, start, completed)
        self._persister.write(self.key, change, written)

    def _begin(self) -> None:
        self.life = Life.ACTIVE
        self.wake()

    def _first_offset(self) -> Generator[int, None, int]:
        """Return where a new group starts (``share.auto.offset.reset``). Raises KafkaError."""
        reset = self._settings_of(self.key.group_id).offset_reset
        partition = self.partition
        if not partition.is_open:
            yield _OPENED
        if reset == EARLIEST:
            return partition.log.log_start_offset
        if reset != LATEST:
            assert isinstance(reset, int)
            search = partition.log.reader.find_timestamp(self._clock.now_ms() - reset)
            found = yield from in_slices(search, _SLICE)
            if found is not None:
                return min(found[0], partition.high_watermark)
        return partition.high_watermark

    def close(self, error: KafkaError) -> None:
        """Serve nothing any more; what waits gets ``error``."""
        if self.life is Life.CLOSED:
            return
        is_expected = error.code in (ErrorCode.NONE, ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if self.life is Life.LOADING and not is_expected:
            self.failure = _as_fetched(error)
        elif not is_expected:
            _log.warning(
                "share partition closed",
                group=self.key.group_id,
                topic=self.partition.topic,
                partition=self.key.partition,
                error=error.code.name,
                reason=error.message,
            )
        self.life = Life.CLOSED
        self._forget_keys()
        for run in self.in_flight:
            if run.lock is not None:
                self._locks.clear(run.lock)
        replies, self._replies = self._replies, []
        self._changes = []
        self._closed(self)
        users, self.users = self.users, set()
        for user in users:
            user.forget(self)
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

    def fetch(self, member_id: str, most_records: int, most_bytes: int, exact: bool) -> Tried:
        """Acquire records for a member, with the work of one turn of the event loop.

        ``exact``: not one record more than ``most_records``; otherwise the last batch is acquired whole (KIP-1206).
        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, why the state couldn't be read, or the log's.
        """
        if self.life is Life.LOADING:
            return _NOTHING
        if self.life is Life.CLOSED:
            raise copy_of(self.failure) if self.failure else KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
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
        most_bytes = min(most_bytes, _MOST_BYTES)
        keys = self._ordered(settings)
        if keys is not None:
            return self._fetch_in_order(keys, member_id, most_records, most_bytes, limit, settings)
        work = len(in_flight) // _RUNS_A_BATCH
        most_work = work + _MOST_BATCHES
        while work < most_work:
            offset = in_flight.next_offset(settings.most_locks)
            if offset is None or offset >= limit:
                return Tried(None, work)
            most_offset = in_flight.start + settings.most_locks - 1
            wanted = _first_records(in_flight.available(offset, most_offset), most_records, None)
            found = log.reader.read(offset, most_bytes, max_offset=limit, min_one=True) if wanted else None
            if found is None:
                return Tried(None, work)
            aborted = log.reader.aborted(offset, found, limit) if settings.read_committed else ()
            headers = find_batches(found, wanted[-1][1], most_work - work)
            work += len(headers)
            if not headers:
                return Tried(None, work)
            if aborted:
                self.archive_aborted([header for _, header in headers], aborted, offset)
            last = min(headers[-1][1].last_offset, limit - 1)
            ranges = in_flight.available(offset, min(last, in_flight.start + settings.most_locks - 1))
            ranges = _first_records(ranges, most_records, None if exact else [h for _, h in headers])
            if ranges:
                return self._take(found, headers, member_id, ranges, settings, work)
            if in_flight.next_offset(settings.most_locks) == offset:
                return Tried(None, work)  # The same would be read again.
        return Tried(None, work, unfinished=True)

    def _take(
        self,
        found: FileSlice,
        headers: Sequence[tuple[int, BatchHeader]],
        member_id: str,
        ranges: Ranges,
        settings: ShareSettings,
        work: int,
    ) -> Tried:
        """Acquire these offsets, whose batches are in the slice. Raises KafkaError: they can't be read."""
        records = batches_with(found, headers, ranges)
        batches = self._acquire(member_id, ranges, settings)
        return Tried(Acquired(records, batches), work + len(batches) + records.copied // _COPIED_A_BATCH)

    def _acquire(self, member_id: str, ranges: Ranges, settings: ShareSettings) -> list[Batch]:
        lock = AcquisitionLock(member_id, self)
        batches = self.in_flight.acquire(ranges, lock)
        self._locks.set(lock, settings.lock_ms / 1000)
        return batches

    def archive_aborted(
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

    # Order by key

    def _ordered(self, settings: ShareSettings) -> KeyReader | None:
        """Return what is known of the keys; None while the group's records aren't ordered."""
        keys = self._keys
        if keys is not None and (not settings.key_ordered or keys.committed != settings.read_committed):
            self._forget_keys()
            keys = None
        in_flight = self.in_flight
        if keys is None and settings.key_ordered:
            keys = self._keys = KeyReader(
                in_flight.start, settings.read_committed, self.partition, self, self._clock, self._run
            )
        if keys is not None:
            keys.order.trim(in_flight.start)
        return keys

    def _forget_keys(self) -> None:
        if self._keys is not None:
            self._keys.close()
            self._keys = None

    def acquired(self, first: int, last: int) -> Ranges:
        """The ranges of these offsets that members have."""
        return self.in_flight.acquired(first, last)

    def _fetch_in_order(
        self,
        keys: KeyReader,
        member_id: str,
        most_records: int,
        most_bytes: int,
        limit: int,
        settings: ShareSettings,
    ) -> Tried:
        """:meth:`fetch` where a record waits for the earlier ones of its key. Raises KafkaError."""
        in_flight, log, order = self.in_flight, self.partition.log, keys.order
        order.cut(max(log.log_end_offset, in_flight.start))
        until = min(limit, in_flight.start + settings.most_locks)
        known = order.known_to
        keys.read(until, limit)
        order.trim(in_flight.start)
        work = max(order.known_to - known, 0) // 4 + (until - in_flight.start) // _OFFSETS_A_BATCH
        available = in_flight.available(in_flight.start, until - 1)
        ranges = order.choose(available, most_records, len(self.users))
        if not ranges:
            return Tried(None, work)
        most_bytes = min(most_bytes, _MOST_BYTES_IN_ORDER)
        found = log.reader.read(ranges[0][0], most_bytes, max_offset=limit, min_one=True)
        if found is None:
            return Tried(None, work)
        headers = find_batches(found, ranges[-1][1], _MOST_BATCHES)
        work += len(headers)
        if not headers:
            return Tried(None, work)
        read_to = headers[-1][1].last_offset
        ranges = [(first, min(last, read_to)) for first, last in ranges if first <= read_to]
        tried = self._take(found, headers, member_id, ranges, settings, work)
        order.acquire(ranges)
        return tried

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
        in_flight, keys = self.in_flight, self._ordered(settings)
        try:
            if keys is None:
                changed = in_flight.acknowledge(batches, member_id, settings.most_deliveries, renewed)
            else:
                in_flight.check_held(batches, member_id)
                judged = keys.order.judge(batches)
                changed = in_flight.acknowledge(judged.applied, member_id, settings.most_deliveries, renewed)
                changed += in_flight.take_back(judged.taken_back)
                reply = self._when_written(keys.order, judged.keys, reply)
        except KafkaError as error:
            reply(error)
            return
        self._tally.acknowledged(batches)
        if any(Acknowledge.RENEW in types for _, _, types in batches):
            self._locks.set(renewed, settings.lock_ms / 1000)
        if not changed:
            reply(None)
            return
        self._persist(changed, reply)
        self.wake()

    def release(self, member_id: str, before: int) -> int:
        """A member's session is over: what it acquired under locks before that number is available again.

        Returns how much work it was.
        """
        return self._release(lambda lock: lock.member_id == member_id and lock.number < before)

    def holds_for(self, member_id: str) -> bool:
        """Whether a member has any records."""
        return any(run.lock is not None and run.lock.member_id == member_id for run in self.in_flight)

    def lock_timed_out(self, lock: AcquisitionLock) -> None:
        held = self.in_flight.locked(lambda each: each is lock)
        self._tally.timeouts += sum(last - first + 1 for first, last in held)
        self._release(lambda each: each is lock)

    def _release(self, lost: Callable[[AcquisitionLock], bool]) -> int:
        if self.life is not Life.ACTIVE:
            return 0
        reply: Callable[[KafkaError | None], None] = _no_request
        settings = self._settings_of(self.key.group_id)
        in_flight, keys = self.in_flight, self._ordered(settings)
        if keys is None:
            changed = in_flight.release(lost, settings.most_deliveries)
        else:
            released = keys.order.release(in_flight.locked(lost))
            changed = in_flight.give_back(released.delivered, settings.most_deliveries)
            changed += in_flight.take_back(released.taken_back)
            reply = self._when_written(keys.order, released.keys, reply)
        if changed:
            self._persist(changed, reply)
            self.wake()
        return len(changed)

    def _when_written(
        self, order: KeyOrder, keys: Collection[int], reply: Callable[[KafkaError | None], None]
    ) -> Callable[[KafkaError | None], None]:
        """Hold the keys' records back until the change is written; returns the reply to the write."""
        order.writing(keys)

        def written(error: KafkaError | None) -> None:
            order.written(keys)
            reply(error)
            if keys:
                self.wake()

        return written

    # Persisting

    def _persist(self, changed: Sequence[Batch], reply: Callable[[KafkaError | None], None]) -> None:
        if not self._writing and not self._replies:
            self._clock.call_later(0, self._write)
        self._changes += changed
        self._replies.append(reply)
        dropped = self.in_flight.dropped
        if dropped:
            self._tally.drop(self._clock.now_ms(), self.partition.topic, self.key.partition, dropped)
            dropped.clear()

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
                error = _as_acknowledged(error)
                self.close(error)
            for reply in replies:
                reply(error)
            self._write()
            if self.is_idle:
                self.close(KafkaError(ErrorCode.NONE))

        change = StateChange(
            self._state_epoch,
            self.leader_epoch,
            in_flight.start,
            in_flight.completed(),
            [batch for batch in changes if batch.last >= in_flight.start],
        )
        self._persister.write(self.key, change, written)

    def left_by(self, user: User) -> None:
        """A session no longer contains it; without any, it closes when all is written."""
        self.users.discard(user)
        if self.is_idle:
            self.close(KafkaError(ErrorCode.NONE))


def _no_request(error: KafkaError | None) -> None:
    """In place of a reply: no request waits for the write."""


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


def copy_of(error: KafkaError) -> KafkaError:
    """The same error without the frames in which it was raised: one that is kept would keep them too."""
    return KafkaError(error.code, error.message)


def _as_fetched(error: KafkaError) -> KafkaError:
    """A fetch's error for what the share coordinator has answered (Kafka: ``SharePartition.fetchPersisterError``)."""
    if error.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _SHOWN:
        return copy_of(error)
    return KafkaError(
        ErrorCode.UNKNOWN_SERVER_ERROR,
        f"The state of the share partition can't be read: {error}",
    )


def _as_acknowledged(error: KafkaError) -> KafkaError:
    """An acknowledgement's error for what the share coordinator has answered; see :func:`_as_fetched`."""
    if error.code in _FENCED:
        return KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, error.message)
    if error.code in _NO_COORDINATOR:
        return KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, error.message)
    return error
