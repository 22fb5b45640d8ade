"""The buffers that requests are received into, and the bound on their total size."""

from __future__ import annotations

from typing import Final, Protocol

from ottla_broker.clock import Clock
from ottla_broker.network.account import Account, Closable
from ottla_broker.network.answer_memory import AnswerMemory

LEAST_BOUND: Final = 256 * 1024 * 1024
"""The bound in bytes if ``queued.max.request.bytes`` is unset, unless two of the largest requests need more."""


def request_memory_bound(configured: int, largest_request: int) -> int:
    """The bound in bytes. ``configured`` is ``queued.max.request.bytes``, -1 if unset."""
    return configured if configured > 0 else max(LEAST_BOUND, 2 * largest_request)


SMALL_FRAME: Final = 64 * 1024
"""A request of at most this many bytes never waits for memory."""


class Receiver(Closable, Protocol):
    """A connection that receives a large request."""

    @property
    def received(self) -> int:
        """The bytes of the request received so far."""
        ...

    @property
    def is_held_up(self) -> bool:
        """Whether the request doesn't arrive because the broker, and not the client, lets it wait."""
        ...

    def on_memory(self) -> None:
        """Called once after :meth:`RequestMemory.wait`, when asking again may succeed."""
        ...


class RequestMemory(Account[Receiver]):
    """Counts the buffers of requests that are being received. Owned by the loop thread.

    As in Kafka, a request may begin while the bound isn't reached, so that one larger than the bound is received too.
    A buffer grows as its request arrives. When the bound is reached, one request may still grow, or none would ever be
    complete; small requests are always received. While the bound is reached, the slowest requests are closed: clients
    that begin requests and don't finish them must not keep the memory from the others.

    Attributes:
        answers: the bytes of answers that clients don't take, with the same bound.
    """

    TOO_SLOW = "its request arrives too slowly while the memory for requests is used up"

    def __init__(self, limit: int, clock: Clock) -> None:
        super().__init__(limit, clock)
        self.answers = AnswerMemory(limit, clock)
        # In the order they came.
        self._waiting: dict[Receiver, None] = {}
        # The connection that may grow beyond the bound.
        self._exempt: Receiver | None = None

    def reserve(self, owner: Receiver, size: int, frame_size: int) -> bool:
        """Count in the first buffer of a request; ``False`` if the bound is reached and the request isn't small."""
        if self.is_short:
            self._watch()
            if frame_size > SMALL_FRAME:
                return False
        self.used += size
        self._sizes[owner] = size
        return True

    def grow(self, owner: Receiver, size: int) -> bool:
        """Count in ``size`` more bytes for ``owner``, which has a buffer; ``False`` if it has to wait."""
        if self.is_short and self._exempt is not owner:
            self._watch()
            if self._exempt is not None:
                return False
            self._exempt = owner
        self.used += size
        self._sizes[owner] += size
        return True

    def wait(self, owner: Receiver) -> None:
        """Have ``owner.on_memory()`` called once, when asking again may succeed."""
        self._waiting[owner] = None
        self.excuse(owner)

    def forget(self, owner: Receiver) -> None:
        """Withdraw :meth:`wait`."""
        del self._waiting[owner]

    def release(self, owner: Receiver) -> None:
        """Count out ``owner``'s buffer and wake waiting connections, first come, first served."""
        self.used -= self._sizes.pop(owner)
        self.excuse(owner)
        if self._exempt is owner:
            self._exempt = None
        for _ in range(len(self._waiting)):
            if not self._waiting or (self.is_short and self._exempt is not None):
                return
            first = next(iter(self._waiting))
            del self._waiting[first]
            first.on_memory()

    def _moved(self) -> dict[Receiver, int]:
        return {
            each: each.received for each in self._sizes if each not in self._waiting and not each.is_held_up
        }


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
        step = 0xFFFF if size > SMALL_FRAME else 0xFFF
        return bytearray((size + step) & ~step)

    def release(self, buffer: bytearray) -> None:
        """Return a buffer for reuse."""
        if len(buffer) <= self.LARGEST:
            self._free.append(buffer)
            if len(self._free) > self.KEEP:
                del self._free[0]
