"""Limits how often a page is rendered: a flood of requests for it takes at most a quarter of the event loop's time."""

from __future__ import annotations

import asyncio
from typing import Final

from ottla_broker.clock import Clock

_REST: Final = 3.0
"""How long a page isn't rendered again, as a multiple of the time that it took."""
_LONGEST_REST: Final = 2.0
"""Seconds; a scrape of many thousands of partitions takes one, and lets requests in meanwhile."""


class RenderThrottle:
    """A context in which one page is rendered; others wait for its end and its rest. Owned by the loop thread."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._lock = asyncio.Lock()
        self._began = self._rested = clock.monotonic()

    async def __aenter__(self) -> None:
        await self._lock.acquire()
        try:
            wait = self._rested - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
        except BaseException:
            self._lock.release()
            raise
        self._began = self._clock.monotonic()

    async def __aexit__(self, *_: object) -> None:
        now = self._clock.monotonic()
        self._rested = now + min(_LONGEST_REST, (now - self._began) * _REST)
        self._lock.release()
