"""A clock that moves when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from heapq import heappop, heappush
from itertools import count
from types import TracebackType
from typing import Any

START = 1000.0
WALL_START_MS = 1_700_000_000_000
_TURNS = 30


class FakeTimer:
    def __init__(self, callback: Callable[..., object], args: tuple[object, ...]) -> None:
        self.callback, self.args, self.cancelled = callback, args, False

    def cancel(self) -> None:
        self.cancelled = True


class FakeClock:
    """An ``ottla_broker.clock.Clock``. ``time`` is the monotonic time in seconds.

    ``ahead``: by how many seconds the wall clock is wrong.
    """

    def __init__(self) -> None:
        self.time = START
        self.ahead = 0.0
        self._timers: list[tuple[float, int, FakeTimer]] = []
        self._serial = count()

    def now_ms(self) -> int:
        return WALL_START_MS + round((self.time - START + self.ahead) * 1000)

    def monotonic(self) -> float:
        return self.time

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> FakeTimer:
        timer = FakeTimer(callback, args)
        heappush(self._timers, (self.time + delay, next(self._serial), timer))
        return timer

    async def sleep(self, seconds: float) -> None:
        woken = asyncio.Event()
        timer = self.call_later(seconds, woken.set)
        try:
            await woken.wait()
        finally:
            timer.cancel()

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[Any]:
        return _Timeout(self, seconds)

    @property
    def pending(self) -> int:
        """How many timers wait."""
        return sum(not timer.cancelled for _, _, timer in self._timers)

    def advance(self, seconds: float) -> None:
        """Let time pass, and run the timers that fall due, in their order."""
        end = self.time + seconds
        while self._timers and self._timers[0][0] <= end:
            at, _, timer = heappop(self._timers)
            self.time = max(self.time, at)
            if not timer.cancelled:
                timer.callback(*timer.args)
        self.time = max(self.time, end)

    def run_due(self) -> None:
        """Run the timers that are due now."""
        self.advance(0)

    async def elapse(self, seconds: float) -> None:
        """Let time pass; after each timer, tasks run until they wait again."""
        end = self.time + seconds
        await _turns()
        while self._timers and self._timers[0][0] <= end:
            self.advance(max(0.0, self._timers[0][0] - self.time))
            await _turns()
        self.advance(end - self.time)
        await _turns()


class _Timeout:
    def __init__(self, clock: FakeClock, seconds: float | None) -> None:
        self._clock = clock
        self._seconds = seconds
        self._inner = asyncio.timeout(None)
        self._timer: FakeTimer | None = None

    async def __aenter__(self) -> _Timeout:
        await self._inner.__aenter__()
        if self._seconds is not None:
            self._timer = self._clock.call_later(self._seconds, self._expire)
        return self

    def _expire(self) -> None:
        self._inner.reschedule(asyncio.get_running_loop().time())

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> bool | None:
        if self._timer is not None:
            self._timer.cancel()
        return await self._inner.__aexit__(kind, error, trace)


async def _turns() -> None:
    for _ in range(_TURNS):
        await asyncio.sleep(0)
