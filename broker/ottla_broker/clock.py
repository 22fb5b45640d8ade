"""Time as a dependency: nothing below ``server.py`` asks the operating system or the event loop for it.

Tests pass a clock of their own, on which hours go by in milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import Any, Protocol


class TimerHandle(Protocol):
    """A callback that runs later; cancelling it twice, or after it ran, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """The time, and ways to wait for it."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch, for records and files."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards, for deadlines."""
        ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Run ``callback(*args)`` on the event loop after ``delay`` seconds."""
        ...

    async def sleep(self, seconds: float) -> None: ...

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[Any]:
        """``asyncio.timeout`` on this clock: raises TimeoutError after ``seconds``; None never does."""
        ...


class SystemClock:
    """The machine's clock, with timers on an asyncio event loop."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.monotonic = time.monotonic

    def now_ms(self) -> int:
        return time.time_ns() // 1_000_000

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        return self._loop.call_later(delay, callback, *args)

    async def sleep(self, seconds: float) -> None:
        await asyncio.sleep(seconds)

    def timeout(self, seconds: float | None) -> AbstractAsyncContextManager[Any]:
        return asyncio.timeout(seconds)


def let_others_run() -> None:
    """Give the interpreter to the event loop's thread, between calls that keep it; for functions on threads."""
    time.sleep(0.0005)
