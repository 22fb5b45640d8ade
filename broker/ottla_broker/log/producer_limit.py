"""Limits how many producers all partitions remember together (``max.producers``)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from heapq import nlargest
from math import inf
from typing import Final, Protocol

from ottla_broker.events import get_logger

_log = get_logger()

_PAUSE: Final = 1_000
"""Unknown producers between two counts: a count goes through all open logs."""
_SHORT_PAUSE: Final = 50
"""The same while the limit is reached."""
_PARTITIONS: Final = 8
_WORK: Final = 20_000
"""Partitions, and producers in them, that are looked at for one that is too many: some milliseconds of work."""
_SECONDS: Final = 60.0
"""The least time between two lines in the log of events."""


class Producers(Protocol):
    """Those that one partition remembers."""

    @property
    def remembered(self) -> int:
        """How many they are."""
        ...

    def forget(self, count: int) -> int:
        """Forget up to ``count`` of them; returns how many were forgotten."""
        ...


class ProducerLimit:
    """Forgets producers of the partitions that remember the most. Owned by the loop thread.

    ``states()`` are those of all open logs; each producer takes some 600 bytes.

    Attributes:
        most: the limit; unknown producers that come between two counts may exceed it.
    """

    def __init__(
        self, most: int, states: Callable[[], Iterable[Producers]], monotonic: Callable[[], float]
    ) -> None:
        self.most = most
        self._states = states
        self._monotonic = monotonic
        self._came = 0
        self._pause = _PAUSE
        self._logged = -inf
        self._forgotten = 0

    def came(self) -> None:
        """An unknown producer writes to a partition."""
        self._came += 1
        if self._came >= min(self._pause, self.most):
            self.enforce()

    def enforce(self) -> None:
        """Count all producers, and forget some if they are too many."""
        self._came = 0
        states = list(self._states())
        excess = sum(each.remembered for each in states) - self.most
        self._pause = _PAUSE if excess < 0 else _SHORT_PAUSE
        work = _WORK
        for each in nlargest(_PARTITIONS, states, key=lambda one: one.remembered):
            if excess <= 0 or work <= 0:
                break
            work -= each.remembered
            gone = each.forget(max(1, each.remembered // 2))
            self._forgotten += gone
            excess -= gone
        if self._forgotten and self._monotonic() - self._logged >= _SECONDS:
            self._logged = self._monotonic()
            _log.warning(
                "more producers than max.producers: the oldest of the largest partitions are forgotten",
                limit=self.most,
                forgotten=self._forgotten,
            )
            self._forgotten = 0
