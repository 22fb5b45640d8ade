"""The buffers that requests are received into, and the bound on their total size."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

LEAST_BOUND: Final = 256 * 1024 * 1024
"""The bound in bytes if ``queued.max.request.bytes`` is unset, unless two of the largest requests need more."""


def request_memory_bound(configured: int, largest_request: int) -> int:
    """The bound in bytes. ``configured`` is ``queued.max.request.bytes``, -1 if unset."""
    return configured if configured > 0 else max(LEAST_BOUND, 2 * largest_request)


class RequestMemory:
    """Counts the buffers of requests that are being received. Owned by the loop thread.

    As in Kafka, a request may begin while the bound isn't reached, so that one larger than the bound is received too.
    A buffer grows as its request arrives. When the bound is reached, one request may still grow, or none would ever be
    complete: the total is at most the bound and one request.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()
        # The connection that may grow beyond the bound.
        self._exempt: object | None = None

    def reserve(self, size: int) -> bool:
        """Count in the first buffer of a request; ``False`` if the bound is reached."""
        if self.used >= self.limit:
            return False
        self.used += size
        return True

    def grow(self, owner: object, size: int) -> bool:
        """Count in ``size`` more bytes for ``owner``, which has a buffer; ``False`` if it has to wait."""
        if self.used >= self.limit and self._exempt is not owner:
            if self._exempt is not None:
                return False
            self._exempt = owner
        self.used += size
        return True

    def wait(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called once, when asking again may succeed."""
        self._waiting.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Withdraw a callback given to :meth:`wait`."""
        self._waiting.remove(callback)

    def release(self, owner: object, size: int) -> None:
        """Count out ``owner``'s buffer and wake waiting connections, first come, first served."""
        self.used -= size
        if self._exempt is owner:
            self._exempt = None
        for _ in range(len(self._waiting)):
            if self.used >= self.limit and self._exempt is not None:
                return
            self._waiting.popleft()()


class BufferPool:
    """Keeps a few large buffers for reuse, so that a stream of large requests needs no new memory.

    Owned by the loop thread.
    """

    KEEP = 4
    LARGEST = 4 * 1024 * 1024

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def acquire(self, size: int) -> bytearray:
        """A buffer of at least ``size`` bytes."""
        for i, buffer in enumerate(self._free):
            if size <= len(buffer) <= 8 * size:
                del self._free[i]
                return buffer
        return bytearray((size + 0xFFFF) & ~0xFFFF)

    def release(self, buffer: bytearray) -> None:
        """Return a buffer for reuse."""
        if len(buffer) <= self.LARGEST:
            self._free.append(buffer)
            if len(self._free) > self.KEEP:
                del self._free[0]
