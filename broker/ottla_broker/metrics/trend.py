"""The growth of a group's lag over the last minutes, and when it is gone."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

HISTORY_SECONDS: Final = 300.0
"""How far back the trend looks."""
_LEAST_BETWEEN: Final = 5.0
_LEAST_TREND: Final = 10.0


class Sample(NamedTuple):
    """A group's lag in records at a time on the monotonic clock."""

    at: float
    records: int


class Trend:
    """A group's lag over the last five minutes: at most one sample in five seconds."""

    __slots__ = ("_samples", "round")

    def __init__(self) -> None:
        self._samples: deque[Sample] = deque(maxlen=int(HISTORY_SECONDS / _LEAST_BETWEEN) + 1)
        # The scrape that has last seen the group.
        self.round = 0

    def add(self, at: float, records: int) -> None:
        """Add what a scrape has seen."""
        samples = self._samples
        if not samples or at - samples[-1].at >= _LEAST_BETWEEN:
            samples.append(Sample(at, records))
        while samples and at - samples[0].at > HISTORY_SECONDS:
            samples.popleft()

    def slope(self, at: float, records: int) -> float | None:
        """Records a second by which the lag grows, over up to five minutes; None while that isn't known."""
        if not self._samples or at - self._samples[0].at < _LEAST_TREND:
            return None
        first = self._samples[0]
        return (records - first.records) / (at - first.at)


def catch_up_seconds(records: int, slope: float | None) -> float | None:
    """Return the seconds until the lag is gone if it goes on shrinking like this; None: it doesn't shrink."""
    if not records:
        return 0.0
    return None if slope is None or slope >= 0 else records / -slope
