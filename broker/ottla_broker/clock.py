"""Time as a dependency: nothing below ``server.py`` asks the operating system for it.

A simulated cluster can pass a clock of its own, on which hours go by in a test's milliseconds.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Protocol


class TimerHandle(Protocol):
    """A callback that is due later; cancelling it twice, or after it ran, does nothing."""

    def cancel(self) -> None: ...


class Clock(Protocol):
    """What the broker knows of time."""

    def now_ms(self) -> int:
        """Wall-clock time in milliseconds since the epoch: what goes into records and files."""
        ...

    def monotonic(self) -> float:
        """Seconds that never go backwards: what deadlines are measured with."""
        ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: object) -> TimerHandle:
        """Run ``callback(*args)`` on the event loop after ``delay`` seconds."""
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
