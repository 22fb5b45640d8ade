"""The limit on the cleaner's I/O, its pauses, and its stop."""

from __future__ import annotations

import os
import sys
import threading
from threading import Event

import pytest

from ottla_broker.log.cleaner.pace import CleaningAbortedError, Pace, Throttle

from .conftest import Broker


class Stopping(Event):
    """An event that records waits instead of waiting."""

    def __init__(self) -> None:
        super().__init__()
        self.slept = 0.0
        self.rests = 0

    def wait(self, timeout: float | None = None) -> bool:
        self.slept += timeout or 0
        self.rests += 1
        return self.is_set()


def test_the_throttle_holds_the_rate_on_average() -> None:
    now = 100.0
    throttle = Throttle(1000.0, lambda: now)
    assert throttle.delay(500) == pytest.approx(0.5)
    assert throttle.delay(500) == pytest.approx(1.0), "two threads share the rate"
    now += 5
    assert throttle.delay(100) == pytest.approx(0.1), "time that was not used is no credit"


def test_a_thread_sleeps_as_long_as_the_throttle_says_but_wakes_to_stop() -> None:
    stopping = Stopping()
    pace = Pace(Throttle(1000.0, lambda: 0.0), stopping, lambda: True)
    pace.moved(2000)
    assert stopping.slept == pytest.approx(2.0)
    assert stopping.rests > 5
    stopping.set()
    with pytest.raises(CleaningAbortedError):
        pace.moved(1)


def test_a_thread_pauses_every_few_records_and_checks_the_log() -> None:
    stopping = Stopping()
    present = True
    pace = Pace(Throttle(float("inf"), lambda: 0.0), stopping, lambda: present)
    for _ in range(1000):
        pace.worked()
    assert 5 <= stopping.rests <= 20
    present = False
    with pytest.raises(CleaningAbortedError):
        pace.worked(1000)
    with pytest.raises(CleaningAbortedError):
        pace.moved(1)


@pytest.mark.skipif(sys.platform != "linux", reason="threads have no priorities of their own")
async def test_the_cleaners_thread_comes_after_the_event_loop(broker: Broker) -> None:
    def priority() -> int:
        return os.getpriority(os.PRIO_PROCESS, threading.get_native_id())

    assert await broker.cleaner._background.run(priority) == min(priority() + 10, 19)
