"""A coordinator's shard: a state machine that lives in memory and in one partition of an internal topic.

The log of the partition is authoritative, the memory is its cache. Three rules keep the two in agreement:

- a shard that opens reads its whole state from the log (*replay*, in slices on the event loop);
- a change is appended first, and answered only when the log has committed it (:meth:`Shard.append`);
- a broker that loses the leadership of the partition drops the memory (:meth:`StateMachine.unload`).

Groups, transactional ids and the state of share groups are such state machines, each on a topic of its own; the groups
of all protocols share one.

Life of a shard::

    LOADING --the log has been replayed--> ACTIVE
    LOADING --the log cannot be read-----> FAILED
    LOADING, ACTIVE, FAILED --leadership lost, topic deleted or broker stopping--> CLOSED
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Final, Protocol

from ottla_broker.clock import Clock
from ottla_broker.coordinator import codes
from ottla_broker.coordinator.time_sliced_task import TimeSlicedTask
from ottla_broker.events import get_logger
from ottla_broker.log.verification import VerificationGuard
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError, ProtocolError
from ottla_protocol.partitioning import partition_for
from ottla_protocol.records.batch import BatchHeader, CorruptRecordError
from ottla_protocol.records.formats import decode_any, iter_headers
from ottla_protocol.records.record import Record, encode_batch

_log = get_logger()


class ShardState(Enum):
    """See the diagram above."""

    LOADING = "loading"
    ACTIVE = "active"
    FAILED = "failed"
    CLOSED = "closed"


NEXT: dict[ShardState, frozenset[ShardState]] = {
    ShardState.LOADING: frozenset({ShardState.ACTIVE, ShardState.FAILED, ShardState.CLOSED}),
    ShardState.ACTIVE: frozenset({ShardState.CLOSED}),
    ShardState.FAILED: frozenset({ShardState.CLOSED}),
    ShardState.CLOSED: frozenset(),
}

ANSWER: dict[ShardState, int] = {
    ShardState.LOADING: codes.COORDINATOR_LOAD_IN_PROGRESS,
    ShardState.ACTIVE: codes.NONE,
    ShardState.FAILED: codes.NOT_COORDINATOR,
    ShardState.CLOSED: codes.NOT_COORDINATOR,
}
"""The error code for requests about a key of the shard, by state."""


class StateMachine(Protocol):
    """The memory of a shard, made again each time the shard is loaded. Only the shard calls it."""

    def replay(self, record: Record, batch: BatchHeader) -> None:
        """Apply one record of the log. Raises ProtocolError for an invalid one."""

    def replay_marker(self, record: Record, batch: BatchHeader) -> None:
        """Apply the record of a control batch: the end of a producer's transaction. Raises ProtocolError."""

    def publish(self) -> Iterator[None]:
        """Make the replayed state visible to requests, in steps."""

    def unload(self) -> None:
        """Drop the state and answer the waiting requests: another broker leads now. Called in any state."""


Written = Callable[[int, int], None]
"""``written(error_code, end_offset)``: the records are committed, or the log's error code for them."""

Rows = Sequence[tuple[bytes, bytes | None]]
"""Keys and values of records."""

_BATCH_BYTES: Final = 16 * 1024
"""The most keys and values that several changes share a batch with (Kafka's ``batch.size``)."""
MOST_BYTES: Final = 16 * 1024 * 1024
"""The most keys and values of a batch, which is encoded in one turn of the event loop."""
_TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)


class Shard:
    """One partition's state machine. Owned by the loop thread.

    ``started_at`` is when this broker's leadership began, on the monotonic clock.
    ``codec`` is the codec of appended batches; ``timeout_ms`` bounds the wait for replicas.
    """

    def __init__(
        self,
        partition: Partition,
        make_machine: Callable[[Shard], StateMachine],
        clock: Clock,
        codec: int,
        timeout_ms: int,
    ) -> None:
        self.partition = partition
        self.index = partition.partition
        self.state = ShardState.LOADING
        self.machine = make_machine(self)
        self._clock = clock
        self._codec = codec
        self._timeout_ms = timeout_ms
        self.started_at = clock.monotonic()
        self._loading: TimeSlicedTask | None = TimeSlicedTask(clock, self._load(), self._loaded)
        # Changes that are appended together at the end of this turn of the event loop, and their bytes.
        self._collects = False
        # Whether several changes came together in the last turn that had any.
        self._is_busy = False
        self._queue: list[tuple[Rows, Written]] = []
        self._queued_bytes = 0

    def write(
        self,
        records: Rows,
        producer: tuple[int, int] | None = None,
        guard: VerificationGuard | None = None,
    ) -> int:
        """Append keys and values as one batch; returns the offset after it.

        With a producer's id and epoch the batch is part of its transaction, which was verified under ``guard`` if the
        batch begins it here. Such a batch has sequence number 0, which a coordinator's batches share
        (``GroupMetadataManager``).

        Raises KafkaError: the log's, or NOT_LEADER_OR_FOLLOWER; then nothing has been appended.
        """
        self._append_queue()
        return self._write(records, producer, guard)

    def _write(
        self, records: Rows, producer: tuple[int, int] | None = None, guard: VerificationGuard | None = None
    ) -> int:
        if self.state is not ShardState.ACTIVE:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        size = sum(len(key) + len(value or b"") for key, value in records)
        if size > MOST_BYTES:
            _log.warning(
                "coordinator record not appended",
                topic=self.partition.topic,
                partition=self.index,
                error=ErrorCode.MESSAGE_TOO_LARGE.name,
                reason=f"it has {size} bytes, and {MOST_BYTES} are encoded at most",
            )
            raise KafkaError(ErrorCode.MESSAGE_TOO_LARGE)
        now_ms = self._clock.now_ms()
        rows = [(now_ms, key, value, ()) for key, value in records]
        if producer is None:
            batch = encode_batch(rows, codec=self._codec)
        else:
            batch = encode_batch(
                rows,
                codec=self._codec,
                producer_id=producer[0],
                producer_epoch=producer[1],
                base_sequence=0,
                transactional=True,
            )
        try:
            return self.partition.append_internal(batch, now_ms, guard)
        except KafkaError as error:
            _log.warning(
                "coordinator record not appended",
                topic=self.partition.topic,
                partition=self.index,
                error=error.code.name,
                reason=error.message,
            )
            raise

    def when_committed(self, end_offset: int, written: Written) -> None:
        """Call ``written`` once, when all replicas have the log up to ``end_offset``: now, if they do."""
        if self.partition.is_committed(end_offset):
            written(codes.NONE, end_offset)
            return
        delayed = DelayedProduce(
            [Awaited(self.partition.when_committed, end_offset)],
            self._clock,
            lambda outcomes: written(int(outcomes[0].error), end_offset),
        )
        delayed.start(self._timeout_ms)

    def when_settled(self, end_offset: int, settled: Callable[[int], None]) -> None:
        """Call ``settled`` once with NONE when all replicas have the log up to ``end_offset``: now, if they do.

        There is no deadline: it is called with an error when this broker no longer leads, or doesn't know whether it
        does. It is called in a later turn of the event loop than what completed it.
        """
        partition = self.partition
        if partition.is_committed(end_offset):
            settled(codes.NONE)
            return

        def reached(error: ErrorCode, _: int) -> None:
            self._clock.call_later(0, settled, int(error))

        try:
            waiter = partition.when_committed(end_offset, reached)
        except KafkaError as error:
            settled(int(error.code))
        else:
            if waiter is None:
                settled(codes.NONE)

    def append(self, records: Rows, written: Written) -> None:
        """Append a change; ``written`` is called once, when it is committed or has failed.

        The first change in a turn of the event loop is appended at once. Those that follow share a batch at the end
        of the turn, since a batch costs more than a record: thousands of consumers commit at a time. While they do,
        the first one is in that batch, too. Changes are in the log in the order of these calls and of :meth:`write`'s.
        """
        if not self._collects:
            self._collects = True
            self._clock.call_later(0, self._end_turn)
            if not self._is_busy:
                self._append_together([(records, written)])
                return
        size = sum(len(key) + len(value or b"") for key, value in records)
        if self._queued_bytes + size > _BATCH_BYTES:
            self._append_queue()
        self._queue.append((records, written))
        self._queued_bytes += size

    def _end_turn(self) -> None:
        self._collects = False
        self._is_busy = len(self._queue) > 1
        self._append_queue()

    def _append_queue(self) -> None:
        queue, self._queue = self._queue, []
        self._queued_bytes = 0
        if queue:
            self._append_together(queue)

    def _append_together(self, queue: Sequence[tuple[Rows, Written]]) -> None:
        try:
            end_offset = self._write([row for records, _ in queue for row in records])
        except KafkaError as error:
            if len(queue) > 1 and error.code in _TOO_LARGE:
                for each in queue:
                    self._append_together([each])
                return
            for _, written in queue:
                written(int(error.code), -1)
            return

        def committed(error: int, _: int) -> None:
            end = end_offset - sum(len(records) for records, _ in queue)
            for records, written in queue:
                end += len(records)
                written(error, end)

        self.when_committed(end_offset, committed)

    def close(self) -> None:
        """Unload the state machine, which answers its waiting requests."""
        if self.state is ShardState.CLOSED:
            return
        if self._loading is not None:
            self._loading.cancel()
            self._loading = None
        self._become(ShardState.CLOSED)
        self._append_queue()
        self.machine.unload()

    def _become(self, state: ShardState) -> None:
        if state not in NEXT[self.state]:
            raise RuntimeError(f"a shard that is {self.state.value} cannot become {state.value}")
        self.state = state

    def _load(self) -> Iterator[None]:
        """Replay the whole log, one batch per step."""
        machine = self.machine
        self.partition.hear_from_now()
        for chunk in self.partition.scan(0):
            try:
                for position, header in iter_headers(chunk):
                    self._replay_batch(machine, chunk, position, header)
                    yield
            except CorruptRecordError as error:
                # Without a valid header the next batch of this chunk can't be found.
                self._skipped("batch headers", -1, error)
        yield from machine.publish()

    def _replay_batch(
        self, machine: StateMachine, chunk: memoryview, position: int, header: BatchHeader
    ) -> None:
        try:
            records = decode_any(chunk, position, header)
        except CorruptRecordError as error:
            self._skipped("batch", header.base_offset, error)
            return
        replay = machine.replay_marker if header.is_control else machine.replay
        for record in records:
            try:
                replay(record, header)
            except ProtocolError as error:
                self._skipped("record", record.offset, error)

    def _skipped(self, what: str, offset: int, error: Exception) -> None:
        _log.error(
            "coordinator state skipped while loading",
            what=what,
            topic=self.partition.topic,
            partition=self.index,
            offset=offset,
            reason=str(error),
        )

    def _loaded(self, error: Exception | None) -> None:
        self._loading = None
        about = {"topic": self.partition.topic, "partition": self.index}
        if error is None:
            self._become(ShardState.ACTIVE)
            _log.debug(
                "coordinator loaded", ms=int((self._clock.monotonic() - self.started_at) * 1000), **about
            )
        else:
            # With only part of the offsets, consumers would start over; they get an error instead.
            self._become(ShardState.FAILED)
            _log.error(
                "coordinator state cannot be read; its groups are not served", reason=repr(error), **about
            )


@dataclass(eq=False)
class ShardHost:
    """The shards of one internal topic that this broker leads: a listener of the replica manager.

    Owned by the loop thread. ``partitions()`` is the topic's number of partitions.
    """

    topic: str
    _partitions: Callable[[], int]
    _make_machine: Callable[[Shard], StateMachine]
    _clock: Clock
    _codec: int
    _timeout_ms: int
    shards: dict[int, Shard] = field(default_factory=dict, init=False)

    def on_leader(self, partition: Partition) -> None:
        """This broker leads ``partition``: load it unless it is loaded already."""
        if partition.topic != self.topic:
            return
        shard = self.shards.get(partition.partition)
        if shard is not None:
            if shard.partition is partition and shard.state is not ShardState.FAILED:
                return
            shard.close()
        self.shards[partition.partition] = Shard(
            partition, self._make_machine, self._clock, self._codec, self._timeout_ms
        )

    def on_stop(self, topic: str, partition: int) -> None:
        if topic == self.topic:
            shard = self.shards.pop(partition, None)
            if shard is not None:
                shard.close()

    def partition_for(self, key: str) -> int:
        """The partition that ``key`` belongs to, whether it is led here or not."""
        return partition_for(key, self._partitions())

    def find(self, key: str) -> tuple[int, Shard | None]:
        """NONE and the active shard of ``key``; or the error code to answer, and None."""
        shard = self.shards.get(self.partition_for(key))
        if shard is None or not shard.partition.is_led_here:
            return codes.NOT_COORDINATOR, None
        error = ANSWER[shard.state]
        return error, shard if error == codes.NONE else None

    @property
    def loading(self) -> bool:
        return any(shard.state is ShardState.LOADING for shard in self.shards.values())

    def close(self) -> None:
        for shard in list(self.shards.values()):
            shard.close()
        self.shards.clear()
