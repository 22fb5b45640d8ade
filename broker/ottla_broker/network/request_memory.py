"""How many bytes of requests are received at once, and the buffers they are received into."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Final

LEAST_BOUND: Final = 256 * 1024 * 1024
"""The bound in bytes where ``queued.max.request.bytes`` sets none, unless two of the largest requests need more."""


def request_memory_bound(configured: int, largest_request: int) -> int:
    """Bytes of requests that are received at once. ``configured`` is ``queued.max.request.bytes``, -1 for unset."""
    return configured if configured > 0 else max(LEAST_BOUND, 2 * largest_request)


class RequestMemory:
    """Counts the buffers of requests that are being received. Owned by the loop thread.

    As in Kafka, a request may begin while anything is left, so that one larger than the bound is received too. A
    buffer grows as its request arrives. Where all that is left is held by requests that have to grow, the first of
    them may, or none would ever be complete: at most the bound and one more request are held.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()
        # Who may grow beyond the bound.
        self._exempt: object | None = None

    def reserve(self, size: int) -> bool:
        """Count in the first buffer of a request; ``False`` when nothing is left."""
        if self.used >= self.limit:
            return False
        self.used += size
        return True

    def grow(self, owner: object, size: int) -> bool:
        """Count in ``size`` more bytes for ``owner``, which has a buffer; ``False`` when it has to wait."""
        if self.used >= self.limit and self._exempt is not owner:
            if self._exempt is not None:
                return False
            self._exempt = owner
        self.used += size
        return True

    def wait(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called once, when it is worth asking again."""
        self._waiting.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take back what :meth:`wait` was given."""
        self._waiting.remove(callback)

    def release(self, owner: object, size: int) -> None:
        """Count out ``owner``'s buffer, and wake those that wait, in the order in which they came."""
        self.used -= size
        if self._exempt is owner:
            self._exempt = None
        for _ in range(len(self._waiting)):
            if self.used >= self.limit and self._exempt is not None:
                return
            self._waiting.popleft()()


class BufferPool:
    """A few large buffers that are used again, so that a stream of large requests costs no fresh memory.

    Owned by the loop thread. What it keeps is bounded; a buffer handed out is at least as large as asked for.
    """

    KEEP = 4
    LARGEST = 4 * 1024 * 1024

    def __init__(self) -> None:
        self._free: list[bytearray] = []

    def take(self, size: int) -> bytearray:
        for i, buffer in enumerate(self._free):
            if size <= len(buffer) <= 8 * size:
                del self._free[i]
                return buffer
        return bytearray((size + 0xFFFF) & ~0xFFFF)

    def give_back(self, buffer: bytearray) -> None:
        if len(buffer) <= self.LARGEST:
            self._free.append(buffer)
            if len(self._free) > self.KEEP:
                del self._free[0]
