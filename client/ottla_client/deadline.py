"""Deadlines, passed down to everything that waits."""

from __future__ import annotations

import asyncio
from math import inf
from time import monotonic
from typing import Final


class Deadline:
    """A time on the monotonic clock, computed once per call of a user from its timeout."""

    __slots__ = ("at",)

    def __init__(self, timeout: float | None) -> None:
        """``timeout`` in seconds from now; None means never."""
        self.at = inf if timeout is None else monotonic() + timeout

    def left(self, at_most: float = inf) -> float:
        """The seconds left, between 0 and ``at_most``."""
        return max(0.0, min(self.at - monotonic(), at_most))

    def passed(self) -> bool:
        return monotonic() >= self.at

    def within(self, at_most: float) -> Deadline:
        """The earlier of this one and ``at_most`` seconds from now."""
        other = Deadline(at_most)
        return self if self.at <= other.at else other

    def timeout(self) -> asyncio.Timeout:
        """``async with deadline.timeout():`` raises TimeoutError at the deadline."""
        left = self.at - monotonic()
        return asyncio.timeout(None if left == inf else max(0.0, left))


NEVER: Final = Deadline(None)


async def wait_at_most(event: asyncio.Event, seconds: float | None) -> bool:
    """Wait until an event is set, for so many seconds at most; None is without end. Returns whether it was set."""
    try:
        async with asyncio.timeout(seconds):
            await event.wait()
    except TimeoutError:
        return False
    return True
