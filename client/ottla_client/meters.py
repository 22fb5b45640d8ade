"""Counts of clients for ``metrics()``: totals, rates and times over the last half minute.

A client adds once for each request or batch, never for a record. Rates come from samples of the totals, which are taken
at most every five seconds, and only while something is added or read.
"""

from __future__ import annotations

from collections import defaultdict, deque
from time import monotonic
from typing import Final

WINDOW_SECONDS: Final = 30.0
"""As ``metrics.sample.window.ms`` of Java's clients."""
_BETWEEN: Final = 5.0

Metrics = dict[str, dict[str, float]]
"""Values by name, by group: ``metrics["producer-metrics"]["record-send-total"]``."""


class Meters:
    """Belongs to one event loop; any thread may read.

    Attributes:
        totals: what was counted so far, by name.
    """

    __slots__ = ("_most", "_sampled", "_samples", "totals")

    def __init__(self) -> None:
        self.totals: defaultdict[str, float] = defaultdict(float)
        now = monotonic()
        self._samples: deque[tuple[float, dict[str, float]]] = deque([(now, {})], maxlen=8)
        self._sampled = now
        # The largest times of this window and of the one before: (window, now, before).
        self._most: defaultdict[str, tuple[int, float, float]] = defaultdict(lambda: (0, 0.0, 0.0))

    def add(self, name: str, amount: float = 1.0) -> None:
        self.totals[name] += amount

    def time(self, name: str, seconds: float, now: float) -> None:
        """Count how long something took that has ended ``now``, on the monotonic clock."""
        totals = self.totals
        totals[f"{name}-count"] += 1
        totals[f"{name}-sum"] += seconds
        window = int(now / WINDOW_SECONDS)
        at, most, before = self._most[name]
        if at != window:
            self._most[name] = window, seconds, most if at == window - 1 else 0.0
        elif seconds > most:
            self._most[name] = window, seconds, before
        if now - self._sampled >= _BETWEEN:
            self._sample(now)

    def _sample(self, now: float) -> None:
        self._sampled = now
        self._samples.append((now, dict(self.totals)))
        while len(self._samples) > 1 and now - self._samples[1][0] >= WINDOW_SECONDS:
            self._samples.popleft()

    def _since(self, now: float) -> tuple[float, dict[str, float]]:
        """The seconds since a sample that is about a window old, and its totals."""
        if now - self._sampled >= _BETWEEN:
            self._sample(now)
        at, totals = self._samples[0]
        return max(now - at, 0.001), totals

    def rate(self, name: str) -> float:
        """The rate per second, over about half a minute."""
        seconds, before = self._since(monotonic())
        return (self.totals.get(name, 0.0) - before.get(name, 0.0)) / seconds

    def average(self, name: str, count: str | None = None) -> float:
        """The average time in seconds, or of ``name`` for each ``count``; 0 if there was none lately."""
        total, number = (f"{name}-sum", f"{name}-count") if count is None else (name, count)
        _, before = self._since(monotonic())
        added = self.totals.get(number, 0.0) - before.get(number, 0.0)
        return (self.totals.get(total, 0.0) - before.get(total, 0.0)) / added if added else 0.0

    def most(self, name: str) -> float:
        """The longest time in seconds of the last window or two."""
        at, most, before = self._most.get(name, (0, 0.0, 0.0))
        age = int(monotonic() / WINDOW_SECONDS) - at
        return max(most, before) if age == 0 else most if age == 1 else 0.0


def fetch_metrics(meters: Meters) -> dict[str, float]:
    """Counts of a consumer's fetches; times in milliseconds, as in Java."""
    totals = meters.totals
    return {
        "bytes-consumed-rate": meters.rate("bytes-consumed-total"),
        "bytes-consumed-total": totals["bytes-consumed-total"],
        "fetch-latency-avg": meters.average("fetch-latency") * 1000,
        "fetch-latency-max": meters.most("fetch-latency") * 1000,
        "fetch-rate": meters.rate("fetch-latency-count"),
        "fetch-throttle-time-avg": meters.average("throttle") * 1000,
        "fetch-throttle-time-max": meters.most("throttle") * 1000,
        "fetch-total": totals["fetch-latency-count"],
        "records-consumed-rate": meters.rate("records-consumed-total"),
        "records-consumed-total": totals["records-consumed-total"],
        "records-per-request-avg": meters.average("records-consumed-total", "fetch-latency-count"),
    }
