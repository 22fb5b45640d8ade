"""Long work on the event loop, in slices so that no request waits long for it."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import get_logger
from ottla_broker.tasks import TimeSlice

_log = get_logger()


class TimeSlicedTask:
    """Runs the steps of an iterator, a :class:`.TimeSlice` at a time, and reports the end once.

    Owned by the loop thread. ``finished(None)`` is called when the iterator ends, ``finished(error)`` when it
    raises; neither is called after :meth:`cancel`. The first slice runs in the next turn of the loop.
    """

    __slots__ = ("_clock", "_finished", "_steps", "_timer")

    def __init__(
        self, clock: Clock, steps: Iterator[None], finished: Callable[[Exception | None], None]
    ) -> None:
        self._clock = clock
        self._steps = steps
        self._finished = finished
        self._timer: TimerHandle | None = clock.call_later(0, self._slice)

    def cancel(self) -> None:
        """Stop; no callback is called after this."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _slice(self) -> None:
        time_slice = TimeSlice(self._clock)
        error: Exception | None = None
        try:
            for _ in self._steps:
                if self._timer is None:
                    return
                if time_slice.is_over:
                    self._timer = self._clock.call_later(0, self._slice)
                    return
        except Exception as caught:
            error = caught
        if self._timer is not None:
            self._timer = None
            self._finished(error)


class Sweeps:
    """The time-sliced tasks of one owner, which end with it. Owned by the loop thread."""

    def __init__(self, clock: Clock, failed: str) -> None:
        """``failed``: what is logged when one of them raises."""
        self._clock = clock
        self._failed = failed
        self._running: set[TimeSlicedTask] = set()

    def start(self, steps: Iterator[None], what: str) -> None:
        """Run the steps; ``what`` they do is for the log."""

        def finished(error: Exception | None) -> None:
            self._running.discard(sweep)
            if error is not None:
                _log.error(self._failed, what=what, reason=repr(error))

        sweep = TimeSlicedTask(self._clock, steps, finished)
        self._running.add(sweep)

    def close(self) -> None:
        for sweep in self._running:
            sweep.cancel()
        self._running.clear()
