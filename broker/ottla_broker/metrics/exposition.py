"""Prometheus's text format, written in pieces.

All samples of a metric stand together. A scrape of a large broker has a hundred thousand of them, which must not hold
the event loop: so collectors append lines to many families in turn, and :meth:`Exposition.chunks` has no large string
to put together. prometheus-client's own writer works through its registry in one go; its parser checks this one in the
tests (docs/decisions/0015).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_protocol.prometheus import head

_LINES_A_CHUNK: Final = 500


class Family:
    """The samples of one metric.

    Attributes:
        lines: those not yet encoded; loops over many samples append to it and call :meth:`flush` now and then.
    """

    __slots__ = ("_chunks", "_head", "count", "lines", "name")

    def __init__(self, name: str, kind: str, meaning: str) -> None:
        self.name = name
        self.count = 0
        self.lines: list[str] = []
        self._head = head(name, kind, meaning)
        self._chunks: list[bytes] = []

    def add(self, value: float, at: str = "", suffix: str = "") -> None:
        """Add a sample. ``at`` are its labels, with braces; ``suffix`` is ``_sum`` or ``_count`` of a summary."""
        self.lines.append(f"{self.name}{suffix}{at} {value}\n")
        if len(self.lines) >= _LINES_A_CHUNK:
            self.flush()

    def flush(self) -> None:
        """Encode the lines so far."""
        if self.lines:
            self.count += len(self.lines)
            self._chunks.append("".join(self.lines).encode(errors="replace"))
            self.lines.clear()

    def chunks(self) -> Sequence[bytes]:
        """The whole metric; nothing if it has no sample."""
        self.flush()
        return [self._head.encode(), *self._chunks] if self._chunks else []


class Exposition:
    """One scrape's metrics, in the order they were declared.

    ``max_series`` bounds the samples of single partitions, topics and groups, of which there may be any number: a
    collector asks for :meth:`room` before it adds them.

    Attributes:
        dropped: samples for which there was no room.
    """

    def __init__(self, max_series: int) -> None:
        self._families: dict[str, Family] = {}
        self._left = max_series
        self.dropped = 0

    def counter(self, name: str, meaning: str) -> Family:
        """A metric that only goes up; its name ends with ``_total`` or ``_count``."""
        return self._family(name, "counter", meaning)

    def gauge(self, name: str, meaning: str) -> Family:
        return self._family(name, "gauge", meaning)

    def summary(self, name: str, meaning: str) -> Family:
        """Quantiles, with ``_sum`` and ``_count``."""
        return self._family(name, "summary", meaning)

    def _family(self, name: str, kind: str, meaning: str) -> Family:
        found = self._families.get(name)
        if found is None:
            found = self._families[name] = Family(name, kind, meaning)
        return found

    def room(self, samples: int) -> bool:
        """Whether so many more samples may be added; otherwise they count as dropped."""
        if samples > self._left:
            self.dropped += samples
            return False
        self._left -= samples
        return True

    def chunks(self) -> list[bytes]:
        """The whole text, in pieces of about 40 KB at most."""
        return [chunk for family in self._families.values() for chunk in family.chunks()]
