"""Removals that wait: in order, with one timer, and on one thread at a time."""

from __future__ import annotations

from tests.support.clock import FakeClock
from tests.support.waiting import until

from ottla_broker.background import Background
from ottla_broker.log.deferred_removals import DeferredRemovals


async def test_thousands_of_removals_wait_with_one_timer() -> None:
    clock, background = FakeClock(), Background(2)
    removals = DeferredRemovals(clock, background)
    done: list[int] = []

    def defect() -> None:
        raise RuntimeError("a defect")

    removals.run_later(2000, lambda: done.append(-1))
    removals.run_later(1000, defect)
    for number in range(1000):
        removals.run_later(1000, lambda number=number: done.append(number))  # type: ignore[misc]
    assert clock.pending == 1
    clock.advance(0.9)
    assert not done
    clock.advance(0.1)

    def all_done() -> bool:
        clock.run_due()
        return len(done) == 1000

    await until(all_done)
    assert done == list(range(1000))
    await until(lambda: clock.pending == 1)
    removals.close()
    clock.advance(10)
    assert clock.pending == 0
    assert len(done) == 1000
    background.close()
