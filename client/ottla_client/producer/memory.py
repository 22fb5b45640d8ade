"""The bound on what a producer buffers, and the queue of those who wait for room."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ..errors import BufferFullError

if TYPE_CHECKING:
    from ..deadline import Deadline


class Memory:
    """``total`` bytes, lent to batches. Who waits is served in the order of coming; belongs to one event loop."""

    __slots__ = ("_waiters", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def contended(self) -> bool:
        """Whether somebody waits."""
        return bool(self._waiters)

    def take(self, size: int) -> bool:
        """Take ``size`` bytes if they are there and nobody waits."""
        if self._waiters or self.free < size:
            return False
        self.free -= size
        return True

    async def wait(self, size: int, deadline: Deadline) -> None:
        """Take ``size`` bytes, waiting for them. Raises BufferFullError at the deadline.

        Cancelled or late, it has taken nothing.
        """
        if self.take(size):
            return
        waiter = asyncio.get_running_loop().create_future()
        entry = (size, waiter)
        self._waiters.append(entry)
        try:
            async with deadline.timeout():
                await waiter
        except (asyncio.CancelledError, TimeoutError) as error:
            if entry in self._waiters:
                self._waiters.remove(entry)
                self._serve()
            elif waiter.done() and not waiter.cancelled() and waiter.exception() is None:
                self.give_back(size)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise BufferFullError(
                f"the producer's buffer of {self.total} bytes (buffer_memory) stayed full for max_block_ms: records "
                "are made faster than the brokers take them"
            ) from None

    def give_back(self, size: int) -> None:
        """Return ``size`` bytes, and serve those who wait."""
        self.free += size
        if self._waiters:
            self._serve()

    def refuse(self, error: Exception) -> None:
        """Fail everybody who waits."""
        waiters, self._waiters = self._waiters, deque()
        for _, waiter in waiters:
            if not waiter.done():
                waiter.set_exception(error)

    def _serve(self) -> None:
        while self._waiters and self._waiters[0][0] <= self.free:
            size, waiter = self._waiters.popleft()
            if not waiter.done():
                self.free -= size
                waiter.set_result(None)
