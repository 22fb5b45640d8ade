"""Deadlines that are moved a thousand times for each time they are missed.

A heartbeat moves a member's deadline. Cancelling and making a timer for each would cost more than the
heartbeat, so a deadline here is a number on its object. One heap holds one live entry an object, with the
time it had when it was put there; when the entry's time comes, an object whose deadline has moved on is put
back with the later time. Each object is thus looked at about once in a session timeout, however many
heartbeats it sends, and the loop has one timer for all.

A process that was frozen has heard nobody meanwhile, and what they have sent waits to be read. So when the timer comes
late, whoever is overdue gets a moment more.
"""

from __future__ import annotations

from collections.abc import Callable
from heapq import heappop, heappush
from typing import Final

from ottla_broker.clock import Clock, TimerHandle

NEVER = float("inf")
_LATE_SECONDS: Final = 1.0
"""How late the timer comes where the process has not run; a busy one comes a little late, too."""
_GRACE_SECONDS: Final = 1.0
"""Enough to read what has been sent meanwhile."""


class Deadline:
    """Something that is over unless it is heard of in time."""

    __slots__ = ("deadline", "queued_for")

    def __init__(self) -> None:
        self.deadline = NEVER
        """When it is over, on the monotonic clock, in seconds. Only :class:`Deadlines` writes it."""
        self.queued_for = NEVER
        """The time of its live entry in the heap: never later than ``deadline``."""


class Deadlines:
    """The heap and its one timer. Owned by the loop thread.

    ``missed(item)`` is called for each object whose deadline has passed; by then the object has none.
    """

    __slots__ = ("_clock", "_count", "_heap", "_missed", "_timer", "_timer_at")

    def __init__(self, clock: Clock, missed: Callable[[Deadline], None]) -> None:
        self._clock = clock
        self._missed = missed
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        self._timer: TimerHandle | None = None
        self._timer_at = NEVER

    def set(self, item: Deadline, seconds: float) -> None:
        """Let ``item`` be over in ``seconds`` from now, whatever was set before."""
        at = self._clock.monotonic() + seconds
        item.deadline = at
        if at < item.queued_for:
            self._queue(item, at)

    def clear(self, item: Deadline) -> None:
        """Let ``item`` have no deadline; its entry goes when its time comes."""
        item.deadline = NEVER

    def close(self) -> None:
        """Forget everything."""
        self._heap.clear()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._timer_at = NEVER

    def _queue(self, item: Deadline, at: float) -> None:
        item.queued_for = at
        self._count += 1
        heappush(self._heap, (at, self._count, item))
        if at < self._timer_at:
            self._arm(at)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = at
        self._timer = self._clock.call_later(max(0.0, at - self._clock.monotonic()), self._due)

    def _due(self) -> None:
        self._timer = None
        now = self._clock.monotonic()
        was_frozen = now - self._timer_at > _LATE_SECONDS
        # While this runs, no entry is worth a timer of its own: the one set at the end sees them all.
        self._timer_at = -NEVER
        heap = self._heap
        while heap and heap[0][0] <= now:
            at, _, item = heappop(heap)
            if item.queued_for != at:
                continue  # an earlier deadline has been set since, and has an entry of its own
            item.queued_for = NEVER
            if item.deadline <= now and was_frozen:
                self.set(item, _GRACE_SECONDS)
            elif item.deadline <= now:
                item.deadline = NEVER
                self._missed(item)
            elif item.deadline != NEVER:
                self._queue(item, item.deadline)
        self._timer_at = NEVER
        if heap:
            self._arm(heap[0][0])
