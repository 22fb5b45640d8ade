"""How many bytes of requests are received at once, and the buffers they are received into."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable


class RequestMemory:
    """Bytes of requests that are being received (``queued.max.request.bytes``; -1 for no bound).

    Owned by the loop thread. As in Kafka a request is let in while anything is left, so that one larger than the
    whole bound is served too, alone.
    """

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self._waiting: deque[Callable[[], None]] = deque()

    def take(self, size: int) -> bool:
        """Reserve ``size`` bytes; ``False`` when the bound has been reached."""
        if 0 <= self.limit <= self.used:
            return False
        self.used += size
        return True

    def wait(self, callback: Callable[[], None]) -> None:
        """Have ``callback()`` called once, when bytes have come free."""
        self._waiting.append(callback)

    def forget(self, callback: Callable[[], None]) -> None:
        """Take back what :meth:`wait` was given."""
        self._waiting.remove(callback)

    def give_back(self, size: int) -> None:
        """Return what was reserved and wake who waits, in the order in which they came."""
        self.used -= size
        for _ in range(len(self._waiting)):
            if 0 <= self.limit <= self.used:
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
