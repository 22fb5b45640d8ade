"""Removals of files after ``file.delete.delay.ms``, when readers have closed them.

Deleting a topic defers one removal for each of its partitions, ten thousand at a time. So they wait in one queue with
one timer, and a thread does a portion of them at a time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from heapq import heappop, heappush
from itertools import count
from typing import Any, Final

from ottla_broker.background import Background
from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import get_logger

_PORTION: Final = 64

_log = get_logger()


class DeferredRemovals:
    """Functions that run later on a thread, in order of time. Owned by the loop thread."""

    def __init__(self, clock: Clock, background: Background) -> None:
        self._clock = clock
        self._background = background
        self._waiting: list[tuple[float, int, Callable[[], None]]] = []
        self._serial = count()
        self._timer: TimerHandle | None = None
        self._running = self._closed = False

    def run_later(self, delay_ms: int, function: Callable[[], None]) -> None:
        """Run a function on a thread after a delay, unless :meth:`close` comes first."""
        at = self._clock.monotonic() + delay_ms / 1000
        earliest = not self._waiting or at < self._waiting[0][0]
        heappush(self._waiting, (at, next(self._serial), function))
        if earliest:
            self._wait()

    def close(self) -> None:
        """Run nothing more; a portion that has begun ends."""
        self._closed = True
        self._waiting.clear()
        self._stop_waiting()

    def _wait(self) -> None:
        self._stop_waiting()
        if self._waiting and not self._running and not self._closed:
            delay = max(0.0, self._waiting[0][0] - self._clock.monotonic())
            self._timer = self._clock.call_later(delay, self._due)

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _due(self) -> None:
        now = self._clock.monotonic()
        portion: list[Callable[[], None]] = []
        while self._waiting and self._waiting[0][0] <= now and len(portion) < _PORTION:
            portion.append(heappop(self._waiting)[2])
        if not portion:
            self._wait()
            return
        self._running = True
        self._background.run(_run, portion).add_done_callback(self._done)

    def _done(self, work: asyncio.Future[Any]) -> None:
        self._running = False
        if not work.cancelled():
            work.result()
            self._wait()


def _run(functions: Sequence[Callable[[], None]]) -> None:
    """Runs on a thread."""
    for function in functions:
        try:
            function()
        except Exception as error:
            _log.error("files can't be removed", exc_info=error)
