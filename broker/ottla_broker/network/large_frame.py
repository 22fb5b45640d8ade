"""A request that doesn't fit into what connections share, on its way in."""

from __future__ import annotations

from typing import Final

from ottla_broker.network.request_memory import BufferPool

QUICK_GROWTH: Final = 4 * 1024 * 1024
"""Up to this size a frame's buffer grows to eight times the bytes received, beyond it to twice as many."""


def room_for(received: int, size: int) -> int:
    """The buffer for a frame of ``size`` bytes: the announced size is only a promise."""
    return min(size, max(min(8 * received, QUICK_GROWTH), 2 * received))


class LargeFrame:
    """A frame with its own buffer, which grows as the rest arrives. Owned by its connection.

    Attributes:
        view: the buffer, at least ``room`` bytes.
        filled: the bytes received; ``size`` when the frame is complete.
        room: the bytes that are counted in the memory for requests.
    """

    __slots__ = ("_buffer", "_pool", "_seen", "filled", "room", "size", "view")

    def __init__(self, pool: BufferPool, room: int, size: int, received: memoryview) -> None:
        self._pool = pool
        self._buffer = pool.acquire(room)
        self._seen = 0
        self.view = memoryview(self._buffer)
        self.view[: len(received)] = received
        self.filled = len(received)
        self.room = room
        self.size = size

    def grow(self, room: int) -> None:
        """Make room for more of the frame."""
        self.room = room
        if room > len(self._buffer):
            old, self._buffer = self._buffer, self._pool.acquire(room)
            self.view = memoryview(self._buffer)
            self.view[: self.filled] = memoryview(old)[: self.filled]
            self._pool.release(old)

    def release(self) -> None:
        """Return the buffer for reuse; nothing may use the frame any longer."""
        self._pool.release(self._buffer)

    def progress(self) -> int:
        """The bytes received since the last call."""
        seen, self._seen = self._seen, self.filled
        return self.filled - seen
