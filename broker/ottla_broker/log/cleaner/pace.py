"""The cleaner's pace: a limit on its I/O, and pauses in which the event loop runs.

The compiled part and the system calls release the interpreter. But a Python thread that computes without a break makes
other threads wait up to the interpreter's switch interval (5 ms) for each turn. So where records are handled in Python,
the cleaner pauses for a moment after every few hundred.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import Final

# About half a millisecond of work, then a pause that is long enough for the other thread to wake up.
RECORDS_A_TURN: Final = 128
_PAUSE_SECONDS: Final = 0.0002
# The longest single sleep, so that a low limit doesn't delay a stop.
_LONGEST_SLEEP_SECONDS: Final = 0.3


class CleaningAbortedError(Exception):
    """The log was deleted or truncated, or the broker is stopping: the segments cleaned so far are dropped."""


class Throttle:
    """A limit in bytes per second on the I/O of all cleaner threads together. Any thread may call it."""

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        """``bytes_per_second`` may be infinite; ``monotonic`` returns seconds."""
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._lock = Lock()
        self._free_at = float("-inf")

    def delay(self, size: int) -> float:
        """Seconds to wait after ``size`` bytes so that the rate holds on average; unused time is no credit."""
        with self._lock:
            now = self._monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            return self._free_at - now


class Pace:
    """One thread's pauses in one cleaning, after each of which it learns whether to go on."""

    def __init__(self, throttle: Throttle, stopping: Event, is_current: Callable[[], bool]) -> None:
        """``is_current``: whether the log still exists unchanged; called from the thread."""
        self._throttle = throttle
        self._stopping = stopping
        self._is_current = is_current
        self._records = 0

    def moved(self, size: int) -> None:
        """Sleep when bytes were read or written too fast. Raises CleaningAbortedError."""
        delay = self._throttle.delay(size)
        while delay > 0:
            self._sleep(min(delay, _LONGEST_SLEEP_SECONDS))
            delay -= _LONGEST_SLEEP_SECONDS
        self._check()

    def worked(self, records: int = 1) -> None:
        """Count records handled in Python, and pause when it is time to. Raises CleaningAbortedError."""
        self._records += records
        if self._records >= RECORDS_A_TURN:
            self._records = 0
            self._sleep(_PAUSE_SECONDS)
            self._check()

    def _check(self) -> None:
        if self._stopping.is_set():
            raise CleaningAbortedError("the cleaner is stopping")
        if not self._is_current():
            raise CleaningAbortedError("the log has changed under the cleaner")

    def _sleep(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise CleaningAbortedError("the cleaner is stopping")
