"""The memory for buffered records, and the queue of sends that wait for it. Kafka's ``BufferPool``."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

from ..errors import BufferFullError

if TYPE_CHECKING:
    from ..deadline import Deadline


class BufferPool:
    """``total`` bytes for batches, allocated in the order of requests. Belongs to one event loop."""

    __slots__ = ("_waiters", "free", "total")

    def __init__(self, total: int) -> None:
        self.total = total
        self.free = total
        self._waiters: deque[tuple[int, asyncio.Future[None]]] = deque()

    @property
    def contended(self) -> bool:
        """Whether a send waits."""
        return bool(self._waiters)

    @property
    def waiting(self) -> int:
        """The number of sends that wait."""
        return len(self._waiters)

    def allocate(self, size: int) -> bool:
        """Allocate ``size`` bytes if they are free and no send waits. Returns whether it did."""
        if self._waiters or self.free < size:
            return False
        self.free -= size
        return True

    async def wait(self, size: int, deadline: Deadline) -> None:
        """Wait for ``size`` bytes and allocate them. Raises BufferFullError at the deadline.

        After an error or a cancellation, nothing is allocated.
        """
        if self.allocate(size):
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
                self.deallocate(size)
            if isinstance(error, asyncio.CancelledError):
                raise
            raise BufferFullError(
                f"the producer's buffer of {self.total} bytes (buffer_memory) stayed full for max_block_ms: "
                "records are sent faster than the brokers accept them"
            ) from None

    def deallocate(self, size: int) -> None:
        """Return ``size`` bytes, and serve the sends that wait."""
        self.free += size
        if self._waiters:
            self._serve()

    def refuse(self, error: Exception) -> None:
        """Fail all sends that wait."""
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
