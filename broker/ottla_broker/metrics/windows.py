"""Quantiles over the last minute or two, from counts that only go up."""

from __future__ import annotations

from collections.abc import Sequence
from operator import sub
from typing import Final
from weakref import WeakKeyDictionary

from ottla_broker.counters import Timings, quantiles
from ottla_broker.metrics.exposition import Family

WINDOW_SECONDS: Final = 60.0
_SHARES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
_LABELS: Final = ("0.50", "0.75", "0.95", "0.98", "0.99", "0.999")
"""The quantiles of Kafka's histograms, as the exporter's rules write them."""


class _Window:
    """The counts at two earlier times. A scrape compares with the earlier one, which is one to two windows old."""

    __slots__ = ("before", "recent", "since")

    def __init__(self, now: float, size: int) -> None:
        self.since = now
        self.before: Sequence[int] = [0] * size
        self.recent: Sequence[int] = self.before

    def counted(self, buckets: Sequence[int], now: float) -> list[int]:
        if now - self.since >= WINDOW_SECONDS:
            self.before, self.recent, self.since = self.recent, list(buckets), now
        return list(map(sub, buckets, self.before))


class Windows:
    """The state of each :class:`.Timings` at earlier scrapes. Owned by the loop thread."""

    def __init__(self) -> None:
        self._windows: WeakKeyDictionary[Timings, _Window] = WeakKeyDictionary()

    def recent(self, timings: Timings, now: float) -> list[int]:
        """The buckets of the last minute or two."""
        window = self._windows.get(timings)
        if window is None:
            window = self._windows[timings] = _Window(now, len(timings.buckets))
        return window.counted(timings.buckets, now)

    def add(
        self,
        family: Family,
        label: str,
        several: Sequence[Timings],
        now: float,
        unit: float = 1000.0,
        zeros: Sequence[Timings] = (),
    ) -> None:
        """Add a summary of ``several`` together. ``label`` is ``name="value"`` or empty; ``unit`` 1000 means ms.

        Whatever ``zeros`` have counted counts as no time.
        """
        counted = [
            sum(each) for each in zip(*(self.recent(timings, now) for timings in several), strict=True)
        ]
        comma = "," if label else ""
        nothing = sum(sum(self.recent(timings, now)) for timings in zeros)
        for share, value in zip(_LABELS, quantiles(counted, _SHARES, nothing), strict=True):
            family.add(value * unit, f'{{{label}{comma}quantile="{share}"}}')
        at = f"{{{label}}}" if label else ""
        family.add(sum(timings.seconds for timings in several) * unit, at, "_sum")
        family.add(sum(timings.count for timings in (*several, *zeros)), at, "_count")
