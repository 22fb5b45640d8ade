"""Callers that wait until an offset is reached."""

from __future__ import annotations

import asyncio
import heapq
from itertools import count

from ottla_broker.clock import Clock
from ottla_protocol.errors import ErrorCode, KafkaError

_serial = count()


class OffsetWaiters:
    """The waiters of one partition, nearest offset first. Owned by the loop thread."""

    __slots__ = ("_heap",)

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, asyncio.Future[int]]] = []

    def __len__(self) -> int:
        return len(self._heap)

    def wait(self, offset: int, timeout_ms: int, clock: Clock) -> asyncio.Future[int]:
        """A future that is done, with the offset reached, once that is at least ``offset``.

        It raises KafkaError: REQUEST_TIMED_OUT after ``timeout_ms``, or the error given to :meth:`fail`.
        """
        future: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        heap = self._heap
        while heap and heap[0][2].done():
            # Timed out: the nearest offset has usually been waited for longest.
            heapq.heappop(heap)
        heapq.heappush(heap, (offset, next(_serial), future))
        timer = clock.call_later(timeout_ms / 1000, _time_out, future)
        future.add_done_callback(lambda _: timer.cancel())
        return future

    def reach(self, offset: int) -> None:
        """Wake the waiters for ``offset`` and below."""
        heap = self._heap
        while heap and heap[0][0] <= offset:
            future = heapq.heappop(heap)[2]
            if not future.done():
                future.set_result(offset)

    def fail(self, code: ErrorCode) -> None:
        """Have all waits end with an error."""
        heap, self._heap = self._heap, []
        for _, _, future in heap:
            if not future.done():
                future.set_exception(KafkaError(code))


def _time_out(future: asyncio.Future[int]) -> None:
    if not future.done():
        future.set_exception(KafkaError(ErrorCode.REQUEST_TIMED_OUT))
