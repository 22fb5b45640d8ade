"""Callers that wait until an offset is reached."""

from __future__ import annotations

import heapq
from collections.abc import Callable
from itertools import count

from ottla_protocol.errors import ErrorCode

_serial = count()

Reached = Callable[[ErrorCode, int], None]
"""Called with NONE and the offset reached, or with the error that ended the wait and -1."""


class OffsetWaiter:
    __slots__ = ("callback",)

    def __init__(self, callback: Reached) -> None:
        self.callback: Reached | None = callback

    def cancel(self) -> None:
        """Don't call back."""
        self.callback = None


class OffsetWaiters:
    """The waiters of one partition, nearest offset first. Owned by the loop thread."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, OffsetWaiter]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def wait(self, offset: int, callback: Reached) -> OffsetWaiter:
        """Have ``callback`` called once, when ``offset`` is reached or :meth:`fail` ends the wait."""
        heap = self._heap
        while heap and heap[0][2].callback is None:
            # Timed out: the nearest offset has usually been waited for longest.
            heapq.heappop(heap)
        waiter = OffsetWaiter(callback)
        heapq.heappush(heap, (offset, next(_serial), waiter))
        return waiter

    def reach(self, offset: int) -> None:
        """Wake the waiters for ``offset`` and below."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            callback = heapq.heappop(heap)[2].callback
            if callback is not None:
                callback(ErrorCode.NONE, offset)

    def fail(self, code: ErrorCode) -> None:
        """Have all waits end with an error."""
        heap, self._heap = self._heap, []
        for _, _, waiter in heap:
            if waiter.callback is not None:
                waiter.callback(code, -1)
