"""Deadlines that move a thousand times for each time they are missed.

A heartbeat moves a member's deadline. Cancelling and making a timer would cost more than the heartbeat, so a deadline
is a number on its object. One heap has one live entry per object, with the deadline it had when it was pushed; when the
entry's time comes, an object whose deadline has moved is pushed back with the later one. So each object is examined
about once per session timeout, whatever the number of its heartbeats, and the loop has one timer for all.

A process that was frozen has not read what its clients sent meanwhile. So when the timer fires late, overdue objects
get a short grace period.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from typing import Final

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.tasks import TimeSlice

NEVER = float("inf")
_LATE_SECONDS: Final = 1.0
"""A timer that is this late means that the process was frozen; a busy process is a little late, too."""
_GRACE_SECONDS: Final = 1.0
"""Enough to read what clients have sent meanwhile."""
_MOST_CLEARED: Final = 1_000
"""Entries of removed deadlines that may stay in the heap whatever its size."""


@dataclass(eq=False, slots=True)
class Deadline:
    """An object that ends unless its deadline is moved in time."""

    deadline: float = field(default=NEVER, init=False)
    """On the monotonic clock, in seconds. Only :class:`Deadlines` writes it."""
    queued_for: float = field(default=NEVER, init=False)
    """The time of its live entry in the heap: never later than ``deadline``."""


class Deadlines:
    """The heap and its one timer. Owned by the loop thread.

    ``missed(item)`` is called for each object whose deadline has passed; the object has none by then.
    """

    __slots__ = ("_cleared", "_clock", "_count", "_heap", "_missed", "_timer", "_timer_at")

    def __init__(self, clock: Clock, missed: Callable[[Deadline], None]) -> None:
        self._clock = clock
        self._missed = missed
        self._heap: list[tuple[float, int, Deadline]] = []
        self._count = 0
        # Deadlines removed since the heap was tidied.
        self._cleared = 0
        self._timer: TimerHandle | None = None
        self._timer_at = NEVER

    def __len__(self) -> int:
        """The entries of the heap."""
        return len(self._heap)

    def set(self, item: Deadline, seconds: float) -> None:
        """Set the deadline to ``seconds`` from now, whatever it was."""
        at = self._clock.monotonic() + seconds
        item.deadline = at
        if at < item.queued_for:
            self._queue(item, at)

    def clear(self, item: Deadline) -> None:
        """Remove the deadline; its heap entry is dropped later."""
        if item.deadline != NEVER:
            item.deadline = NEVER
            self._cleared += 1
            if self._cleared > _MOST_CLEARED and 2 * self._cleared > len(self._heap):
                self._tidy()

    def _tidy(self) -> None:
        """Drop the entries of objects without a deadline, which would stay until their time comes."""
        kept = []
        for entry in self._heap:
            at, _, item = entry
            if item.queued_for != at:
                continue
            if item.deadline == NEVER:
                item.queued_for = NEVER
            else:
                kept.append(entry)
        heapify(kept)
        self._heap[:] = kept
        self._cleared = 0

    def close(self) -> None:
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
        # No timers are set while this runs: the one set at the end covers all entries.
        self._timer_at = -NEVER
        heap = self._heap
        time_slice = TimeSlice(self._clock)
        while heap and heap[0][0] <= now and not time_slice.is_over:
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
            self._arm(max(heap[0][0], self._clock.monotonic()))
