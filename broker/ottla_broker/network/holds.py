"""The reasons for which a connection isn't read, besides what its answers do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from ottla_broker.clock import Clock, TimerHandle

LONG: Final = 1
"""A request is under way that nothing behind it may overtake."""
MUTED: Final = 2
"""The client exceeds a quota."""
MEMORY: Final = 4
"""A large request waits for memory."""
ENDING: Final = 8
"""The connection has closed, or the listener stops."""


class Holds:
    """Owned by its connection, on the loop thread.

    Attributes:
        reasons: the sum of those in force; 0 if there is none.
    """

    __slots__ = ("_clock", "_long", "_timer", "_until", "reasons")

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self.reasons = 0
        self._long = 0
        self._timer: TimerHandle | None = None
        self._until = 0.0

    def add(self, reason: int) -> None:
        self.reasons |= reason

    def remove(self, reason: int) -> None:
        self.reasons &= ~reason

    def begin_long(self) -> None:
        """A long request begins."""
        self._long += 1
        self.reasons |= LONG

    def end_long(self) -> bool:
        """One ends; returns whether it was the last."""
        self._long -= 1
        if not self._long:
            self.reasons &= ~LONG
        return not self._long

    def mute(self, seconds: float, then: Callable[[], object]) -> None:
        """Hold for a time, unless it is held for longer already; ``then`` is called after it."""
        until = self._clock.monotonic() + seconds
        if until <= self._until:
            return
        self.unmute()
        self._until = until
        self.reasons |= MUTED
        self._timer = self._clock.call_later(seconds, self._end_mute, then)

    def unmute(self) -> None:
        """Call nothing later."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self.reasons &= ~MUTED

    def _end_mute(self, then: Callable[[], object]) -> None:
        self.unmute()
        then()
