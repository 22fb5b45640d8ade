"""The result of a call to the cluster, shared by all who want it at the same time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, Generic, TypeVar

T = TypeVar("T")

SHARE: Final = 300
"""A call that took a second is repeated after that many: open pages need several, and cost at most 0.5 % together."""


class Cached(Generic[T]):
    """Keeps a result for ``least`` seconds, and up to ``most`` if it took long. Failures aren't kept.

    It belongs to one event loop. A caller that is cancelled doesn't cancel the call, which others may wait for.
    """

    def __init__(self, call: Callable[[], Awaitable[T]], least: float, most: float) -> None:
        self._call = call
        self._least = least
        self._most = most
        self._task: asyncio.Task[T] | None = None
        self._until = 0.0
        self._value: T | None = None
        self._has = False
        self._idle = 0.0
        self.at = 0.0
        """The time of the last result, on the event loop's clock."""

    @property
    def last(self) -> T | None:
        """The last result, however old."""
        return self._value

    @property
    def running(self) -> bool:
        return self._task is not None and not self._task.done()

    async def get(self) -> T:
        loop = asyncio.get_running_loop()
        if self._has and loop.time() < self._until:
            return self._value  # type: ignore[return-value]
        return await asyncio.shield(self._started())

    async def within(self, seconds: float) -> T | None:
        """The result if it is there by then, otherwise the last one, or None without one. Failures are raised."""
        if self._has and asyncio.get_running_loop().time() < self._until:
            return self._value
        task = self._started()
        done, _ = await asyncio.wait([task], timeout=0 if self._has else seconds)
        return task.result() if done else self._value

    def refresh(self) -> None:
        """Start a call if the result is too old, without waiting for it."""
        if not self._has or asyncio.get_running_loop().time() >= self._until:
            self._started()

    def _started(self) -> asyncio.Task[T]:
        if self._task is None or self._task.done():
            self._task = asyncio.get_running_loop().create_task(self._run())
            # Its waiters get the error; without any, it is shown by the next page that asks.
            self._task.add_done_callback(lambda task: task.cancelled() or task.exception())
        return self._task

    async def _run(self) -> T:
        loop = asyncio.get_running_loop()
        started = loop.time()
        self._idle = 0.0
        value = await self._call()
        self.at = loop.time()
        self._until = self.at + pause_after(self.at - started - self._idle, self._least, self._most)
        self._value, self._has = value, True
        return value

    def amend(self, value: T) -> None:
        """Put this in the place of the last result, which stays as old as it is."""
        self._value = value

    def idle(self, seconds: float) -> None:
        """So many seconds of the call that is under way cost brokers nothing: it waited for another one."""
        self._idle += seconds

    def forget(self) -> None:
        """Ask again next time: something was changed."""
        self._until = 0.0

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            # Nothing asks for its result any more.
            with suppress(asyncio.CancelledError, Exception):
                await self._task


def pause_after(took: float, least: float, most: float) -> float:
    """The pause after a call that took so many seconds."""
    return max(least, min(SHARE * took, most))
