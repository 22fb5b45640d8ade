"""A partition's high watermark and its waiters, over a log whose fsyncs the test completes."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.replica.waits import committed

from ottla_broker.log.leader_epoch import LeaderEpochs
from ottla_broker.log.unstable_transactions import UnstableTransactions
from ottla_broker.replica.delayed_fetch import DelayedFetch
from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.replica.environment import ReplicaEnvironment
from ottla_broker.replica.leadership import LeaderState
from ottla_broker.replica.partition import Partition
from ottla_protocol.errors import ErrorCode, KafkaError


class Timers:
    """A clock whose timers the test runs."""

    def __init__(self) -> None:
        self.pending: list[SimpleNamespace] = []

    def now_ms(self) -> int:
        return 0

    def monotonic(self) -> float:
        return 0.0

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> Any:
        timer = SimpleNamespace(delay=delay, run=lambda: callback(*args))
        timer.cancel = lambda: self.pending.remove(timer) if timer in self.pending else None
        self.pending.append(timer)
        return timer

    def run(self, up_to: float = 1e9) -> None:
        for timer in [t for t in self.pending if t.delay <= up_to]:
            if timer in self.pending:
                self.pending.remove(timer)
                timer.run()


class FakeLog:
    """A log of records of 10 bytes; ``flush_due`` while ``flushes`` is a list to put the fsyncs in."""

    def __init__(self) -> None:
        self.log_start_offset = 0
        self.log_end_offset = 0
        self.flushes: list[asyncio.Future[None]] | None = None
        self.refuses_flush = False
        self.config = SimpleNamespace(delete=True)
        self.topic_id: bytes | None = None
        self.epochs = LeaderEpochs()
        self.producers = SimpleNamespace(unstable=UnstableTransactions())

    def open(self) -> FakeLog:
        return self

    def assign_topic_id(self, topic_id: bytes) -> None:
        self.topic_id = topic_id

    def append(self, records: memoryview, **_: Any) -> Any:
        first = self.log_end_offset
        self.log_end_offset += 1
        due = self.flushes is not None
        return SimpleNamespace(first_offset=first, last_offset=first, size=10, duplicate=False, flush_due=due)

    def flushed(self, end: int) -> asyncio.Future[None]:
        if self.refuses_flush:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        assert self.flushes is not None
        self.flushes.append(asyncio.get_running_loop().create_future())
        return self.flushes[-1]

    def advance_log_start_offset(self, offset: int) -> None:
        self.log_start_offset = offset


def made(flushing: bool = False) -> tuple[Partition, FakeLog, Timers]:
    log, timers = FakeLog(), Timers()
    if flushing:
        log.flushes = []
    logs: Any = SimpleNamespace(get=lambda *_: log, high_watermark=lambda *_: None)
    partition = Partition("t", 0, bytes(16), ReplicaEnvironment(0, logs, timers))
    partition.lead(LeaderState(0, 0, 0, [0], 0, [0]), open_log=False)
    return partition, log, timers


def append(partition: Partition) -> int:
    return int(partition.append(memoryview(b""), 0).last_offset) + 1


async def test_without_fsyncs_records_are_committed_at_once() -> None:
    partition, _, timers = made()
    assert partition.is_committed(append(partition))
    assert partition.high_watermark == 1
    assert not timers.pending


async def test_an_fsync_that_does_not_begin_is_not_waited_for() -> None:
    partition, log, _ = made(flushing=True)
    log.refuses_flush = True
    with pytest.raises(KafkaError):
        append(partition)
    log.refuses_flush = False
    log.flushes = None
    assert append(partition) == 2
    assert partition.high_watermark == 2


async def test_the_high_watermark_waits_for_the_fsync() -> None:
    partition, log, timers = made(flushing=True)
    waits = [committed(partition, append(partition)) for _ in range(3)]
    assert partition.high_watermark == 0
    assert log.flushes is not None
    log.flushes[0].set_result(None)
    await asyncio.sleep(0)
    assert partition.high_watermark == 1
    for flush in log.flushes[1:]:
        flush.set_result(None)
    await asyncio.gather(*waits)
    assert partition.high_watermark == 3
    await asyncio.sleep(0)
    assert not timers.pending


async def test_waiters_that_timed_out_are_dropped() -> None:
    partition, _, timers = made(flushing=True)
    outcomes: list[Outcome] = []
    for _ in range(50):
        awaited = Awaited(partition.when_committed, append(partition))
        DelayedProduce([awaited], timers, outcomes.extend).start(5)
        timers.run()
    assert {outcome.error for outcome in outcomes} == {ErrorCode.REQUEST_TIMED_OUT}
    assert len(outcomes) == 50
    assert partition._watermark._waiters is not None
    assert len(partition._watermark._waiters) <= 1


async def test_a_failed_fsync_reaches_all_waiters() -> None:
    partition, log, timers = made(flushing=True)
    waits = [committed(partition, append(partition)) for _ in range(2)]
    ran: list[bool] = []
    DelayedFetch([partition.fetches], 1, timers, lambda: ran.append(True)).start(60_000)
    assert log.flushes is not None
    log.flushes[0].set_exception(KafkaError(ErrorCode.KAFKA_STORAGE_ERROR))
    await asyncio.sleep(0)
    for wait in waits:
        with pytest.raises(KafkaError) as caught:
            await wait
        assert caught.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    timers.run(0)
    assert ran
    assert partition.high_watermark == 0
    log.flushes[1].cancel()
    await asyncio.sleep(0)
    assert partition.high_watermark == 0


async def test_stopping_a_partition_answers_all_waiters() -> None:
    partition, log, timers = made(flushing=True)
    wait = committed(partition, append(partition))
    ran: list[bool] = []
    DelayedFetch([partition.fetches], 100, timers, lambda: ran.append(True)).start(60_000)
    partition.stop()
    with pytest.raises(KafkaError) as caught:
        await wait
    assert caught.value.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    timers.run(0)
    assert ran
    assert log.flushes is not None
    log.flushes[0].set_result(None)
    await asyncio.sleep(0)
    with pytest.raises(KafkaError):
        partition.append_internal(bytearray(), 0)


async def test_a_fetch_counts_the_bytes_that_became_visible() -> None:
    partition, log, timers = made(flushing=True)
    ran: list[bool] = []
    DelayedFetch([partition.fetches], 25, timers, lambda: ran.append(True)).start(60_000)
    for expected in (False, False, True):
        append(partition)
        assert log.flushes is not None
        log.flushes.pop().set_result(None)
        await asyncio.sleep(0)
        timers.run(0)
        assert bool(ran) == expected
    assert not timers.pending, "the timer of the longest wait goes as well"
    assert not partition.fetches


async def test_an_abandoned_fetch_leaves_nothing() -> None:
    partition, _, timers = made()
    ran: list[bool] = []
    waiting = DelayedFetch([partition.fetches], 5, timers, lambda: ran.append(True))
    waiting.start(60_000)
    append(partition)
    waiting.abandon()
    timers.run()
    assert not ran
    assert not timers.pending
    assert not partition.fetches


async def test_a_fetch_runs_once_even_if_several_events_complete_it() -> None:
    partition, _, timers = made()
    ran: list[bool] = []
    waiting = DelayedFetch([partition.fetches, partition.fetches], 10, timers, lambda: ran.append(True))
    waiting.start(60_000)
    append(partition)
    append(partition)
    partition.stop()
    timers.run()
    assert ran == [True]


@pytest.mark.parametrize(
    ("offset", "start"), [(-1, 3), (0, 0), (2, 2), (3, 3), (4, None), (-2, None), (2**62, None)]
)
async def test_delete_records(offset: int, start: int | None) -> None:
    partition, _, _ = made()
    for _ in range(3):
        append(partition)
    if start is None:
        with pytest.raises(KafkaError) as caught:
            partition.delete_records(offset)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE
    else:
        assert partition.delete_records(offset) == start


async def test_records_behind_an_fsync_are_not_deleted() -> None:
    partition, log, _ = made()
    append(partition)
    log.flushes = []
    append(partition)
    assert partition.delete_records(-1) == 1
    with pytest.raises(KafkaError):
        partition.delete_records(2)
