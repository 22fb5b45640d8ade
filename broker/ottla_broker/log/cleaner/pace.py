"""How fast the cleaner may go: a bound on its I/O, and a rhythm that leaves the event loop its turns.

A thread of Python that computes without a break makes every other thread wait up to the interpreter's switch
interval (5 ms) for each turn. So the cleaner rests for a moment after every few hundred records; that is when
the event loop runs.
"""

from __future__ import annotations

from collections.abc import Callable
from threading import Event, Lock
from typing import Final

# About half a millisecond of work, then a rest that is long enough for the other thread to wake up.
RECORDS_A_TURN: Final = 128
_BYTES_A_TURN: Final = 256 * 1024
_REST_S: Final = 0.0002
# The longest sleep at one go, so that a low limit does not hold up a stop.
_LONGEST_SLEEP_S: Final = 0.3


class CleaningAbortedError(Exception):
    """The log was deleted or truncated, or the broker is stopping: what was cleaned so far is thrown away."""


class Throttle:
    """A limit in bytes per second on what all cleaner threads read and write together. Any thread may call
    it.
    """

    def __init__(self, bytes_per_second: float, monotonic: Callable[[], float]) -> None:
        """``bytes_per_second`` may be infinite; ``monotonic`` gives seconds."""
        self._rate = bytes_per_second
        self._monotonic = monotonic
        self._lock = Lock()
        self._free_at = float("-inf")

    def delay(self, size: int) -> float:
        """Seconds to wait after ``size`` bytes, so that the rate holds on average; no credit is saved up."""
        with self._lock:
            now = self._monotonic()
            self._free_at = max(self._free_at, now) + size / self._rate
            return self._free_at - now


class Pace:
    """One thread's rhythm in one cleaning; it is also where the thread learns that it shall stop."""

    def __init__(self, throttle: Throttle, stopping: Event, is_current: Callable[[], bool]) -> None:
        """``is_current`` says whether the log is still there as it was; it is called from the thread."""
        self._throttle = throttle
        self._stopping = stopping
        self._is_current = is_current
        self._records = 0
        self._bytes = 0

    def moved(self, size: int) -> None:
        """``size`` bytes were read or written: sleep when that was too fast. Raises CleaningAbortedError."""
        delay = self._throttle.delay(size)
        while delay > 0:
            self._sleep(min(delay, _LONGEST_SLEEP_S))
            delay -= _LONGEST_SLEEP_S
        self._bytes += size
        if self._bytes >= _BYTES_A_TURN:
            self._rest()

    def worked(self, records: int = 1) -> None:
        """``records`` were looked at: rest when it is time to. Raises CleaningAbortedError."""
        self._records += records
        if self._records >= RECORDS_A_TURN:
            self._rest()

    def _rest(self) -> None:
        self._records = self._bytes = 0
        self._sleep(_REST_S)
        if not self._is_current():
            raise CleaningAbortedError("the log has changed under the cleaner")

    def _sleep(self, seconds: float) -> None:
        if self._stopping.wait(seconds):
            raise CleaningAbortedError("the cleaner is stopping")
