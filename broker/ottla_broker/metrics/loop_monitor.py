"""Measures how late the event loop is, and how much of the time its thread computes."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.counters import Timings

_TICK_SECONDS: Final = 0.1
_SNAPSHOT_SECONDS: Final = 10.0
_SNAPSHOTS: Final = 4


class LoopMonitor:
    """A timer that runs ten times a second. Owned by the loop thread.

    Attributes:
        lateness: how late the timer was: as late as any client's request that came meanwhile.
    """

    def __init__(self, clock: Clock, cpu_seconds: Callable[[], float]) -> None:
        self._clock = clock
        self._cpu_seconds = cpu_seconds
        self.lateness = Timings()
        self._timer: TimerHandle | None = None
        self._due = 0.0
        # The time and the processor time at some earlier moments, oldest first.
        self._snapshots: deque[tuple[float, float]] = deque(maxlen=_SNAPSHOTS)

    def start(self) -> None:
        self._snapshots.append((self._clock.monotonic(), self._cpu_seconds()))
        self._plan()

    def _plan(self) -> None:
        self._due = self._clock.monotonic() + _TICK_SECONDS
        self._timer = self._clock.call_later(_TICK_SECONDS, self._tick)

    def _tick(self) -> None:
        now = self._clock.monotonic()
        self.lateness.add(max(0.0, now - self._due))
        if now - self._snapshots[-1][0] >= _SNAPSHOT_SECONDS:
            self._snapshots.append((now, self._cpu_seconds()))
        self._plan()

    def idle_share(self) -> float:
        """The share of the last half minute in which the loop's thread used no processor time: 1 is idle."""
        if not self._snapshots:
            return 1.0
        then, used = self._snapshots[0]
        passed = self._clock.monotonic() - then
        if passed <= 0:
            return 1.0
        return min(1.0, max(0.0, 1.0 - (self._cpu_seconds() - used) / passed))

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
