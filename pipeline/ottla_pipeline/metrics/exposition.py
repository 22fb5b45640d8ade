"""One scrape's metrics in Prometheus's text format."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from ottla_protocol.prometheus import head, labels

if TYPE_CHECKING:
    from ottla_client import TopicPartition

    from .lag import Behind


class Exposition:
    """Samples by metric. Those of a metric stand together, in the order in which the metrics were first used."""

    def __init__(self, prefix: str) -> None:
        """``prefix`` begins all names."""
        self._prefix = prefix
        self._metrics: dict[str, list[str]] = {}

    def counter(self, name: str, meaning: str, value: float, **at: object) -> None:
        """A number that only goes up; its name ends with ``_total``."""
        self._add(name, "counter", meaning, "", value, at)

    def gauge(self, name: str, meaning: str, value: float, **at: object) -> None:
        self._add(name, "gauge", meaning, "", value, at)

    def summary(self, name: str, meaning: str, total: float, count: int, **at: object) -> None:
        """The sum and the number of durations, without quantiles."""
        self._add(name, "summary", meaning, "_sum", total, at)
        self._add(name, "summary", meaning, "_count", count, at)

    def _add(
        self, name: str, kind: str, meaning: str, suffix: str, value: float, at: Mapping[str, object]
    ) -> None:
        full = self._prefix + name
        lines = self._metrics.get(full)
        if lines is None:
            lines = self._metrics[full] = [head(full, kind, meaning)]
        lines.append(f"{full}{suffix}{labels(**at)} {value}\n")

    def positions(
        self,
        offsets: Mapping[TopicPartition, int],
        behind: Mapping[TopicPartition, Behind] | None,
        **at: object,
    ) -> None:
        """The next offset of each partition, and its lag; ``behind`` is None if no broker answers."""
        self.gauge(
            "lag_known", "1 if brokers answered where the topics end, else 0.", int(behind is not None), **at
        )
        for partition, offset in sorted(offsets.items()):
            where = {**at, "topic": partition.topic, "partition": partition.partition}
            self.gauge("next_offset", "The next offset of each partition.", offset, **where)
        for partition, lag in sorted((behind or {}).items()):
            where = {**at, "topic": partition.topic, "partition": partition.partition}
            self.gauge("lag_records", "Records from there to the high watermark.", lag.records, **where)
            if lag.seconds is not None:
                self.gauge("lag_seconds", "The age of the next record.", round(lag.seconds, 3), **where)

    def text(self) -> bytes:
        return "".join("".join(lines) for lines in self._metrics.values()).encode(errors="replace")
