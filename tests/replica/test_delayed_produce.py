"""Requests that wait for offsets of several partitions."""

from __future__ import annotations

from collections.abc import Sequence

from tests.support.clock import FakeClock

from ottla_broker.replica.delayed_produce import Awaited, DelayedProduce, Outcome
from ottla_broker.replica.offset_waiters import OffsetWaiter, OffsetWaiters, Reached
from ottla_protocol.errors import ErrorCode, KafkaError


class Bench:
    def __init__(self, *offsets: int) -> None:
        self.clock = FakeClock()
        self.partitions = [OffsetWaiters() for _ in offsets]
        self.ran: list[Sequence[Outcome]] = []
        awaited = [Awaited(each.wait, offset) for each, offset in zip(self.partitions, offsets, strict=True)]
        self.delayed = DelayedProduce(awaited, self.clock, self.ran.append)


def reached(offset: int) -> Outcome:
    return Outcome(ErrorCode.NONE, offset)


def test_it_runs_once_when_all_are_reached_and_in_a_later_turn() -> None:
    bench = Bench(5, 7)
    bench.delayed.start(1000)
    bench.partitions[1].reach(9)
    bench.clock.run_due()
    assert not bench.ran
    bench.partitions[0].reach(4)
    bench.partitions[0].reach(5)
    assert not bench.ran, "the append that completed it goes on first"
    bench.clock.run_due()
    assert bench.ran == [[reached(5), reached(9)]]
    assert bench.clock.pending == 0


def test_one_timer_a_request() -> None:
    bench = Bench(*range(20))
    bench.delayed.start(1000)
    assert bench.clock.pending == 1


def test_those_that_are_not_reached_in_time_time_out_and_wait_no_longer() -> None:
    bench = Bench(5, 7)
    bench.delayed.start(1000)
    bench.partitions[0].reach(5)
    bench.clock.time += 2
    bench.clock.run_due()
    assert bench.ran == [[reached(5), Outcome(ErrorCode.REQUEST_TIMED_OUT)]]
    bench.partitions[1].reach(9)
    bench.clock.run_due()
    assert len(bench.ran) == 1


def test_an_error_is_the_outcome_of_its_partition() -> None:
    bench = Bench(5, 7)
    bench.delayed.start(1000)
    bench.partitions[0].fail(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    bench.partitions[1].reach(7)
    bench.clock.run_due()
    assert bench.ran == [[Outcome(ErrorCode.NOT_LEADER_OR_FOLLOWER), reached(7)]]


def test_who_has_gone_is_not_answered() -> None:
    bench = Bench(5)
    bench.delayed.start(1000)
    bench.delayed.abandon()
    bench.partitions[0].reach(5)
    bench.clock.time += 2
    bench.clock.run_due()
    assert not bench.ran
    assert bench.clock.pending == 0


def test_what_is_reached_or_refused_at_once() -> None:
    def refuse(offset: int, callback: Reached) -> OffsetWaiter | None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    clock, ran = FakeClock(), list[Sequence[Outcome]]()
    awaited = [Awaited(lambda *_: None, 3), Awaited(refuse, 4)]
    DelayedProduce(awaited, clock, ran.append).start(1000)
    clock.run_due()
    assert ran == [[reached(3), Outcome(ErrorCode.KAFKA_STORAGE_ERROR)]]
