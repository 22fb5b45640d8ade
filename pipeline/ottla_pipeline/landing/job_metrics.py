"""The metrics of a landing job while it runs, at ``/metrics``."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from time import time
from typing import Final

from ottla_client import TopicPartition
from ottla_pipeline.landing.settings import BatchDone, Landing
from ottla_pipeline.metrics.exposition import Exposition
from ottla_pipeline.metrics.lag import LagProbe
from ottla_pipeline.metrics.server import served

_PREFIX: Final = "ottla_landing_"
_COUNTS: Final = (
    ("rows", "Rows in the table since this job started."),
    ("bytes", "Bytes of the records' keys and values, as they were read."),
    ("files", "Data files in the table."),
    ("dead_letters", "Records that became dead letters."),
)
"""Sums of what :class:`.BatchDone` has under these names."""
_STEP: Final = (
    "Time that each step of a batch took: read (the tasks), commit (to the table), dead_letters, group (its"
    " offsets)."
)


class JobMetrics:
    """Counts a run's batches. The job's thread counts, a scraper's reads."""

    def __init__(self, table: str, probe: LagProbe, wall: Callable[[], float] = time) -> None:
        self._table = table
        self._probe = probe
        self._wall = wall
        self._lock = Lock()
        self._batches = self._restarts = 0
        self._sums = dict.fromkeys((name for name, _ in _COUNTS), 0)
        self._steps: dict[str, float] = {}
        self._committed: float | None = None
        self._next: dict[TopicPartition, int] = {}

    def at(self, offsets: Mapping[TopicPartition, int]) -> None:
        """The job goes on at these offsets."""
        with self._lock:
            self._next.update(offsets)

    def batch(self, done: BatchDone) -> None:
        with self._lock:
            self._batches += 1
            for name in self._sums:
                self._sums[name] += getattr(done, name)
            for name, seconds in done.durations.items():
                self._steps[name] = self._steps.get(name, 0.0) + seconds
            self._committed = self._wall()
            for topic, partitions in done.end.items():
                for partition, offset in partitions.items():
                    self._next[TopicPartition(topic, partition)] = offset

    def restarted(self) -> None:
        """Spark has failed, and a batch is tried again."""
        with self._lock:
            self._restarts += 1

    def render(self) -> bytes:
        """The text of a scrape. It asks brokers where the topics end."""
        out, table = Exposition(_PREFIX), self._table
        with self._lock:
            out.counter(
                "batches_total", "Batches in the table since this job started.", self._batches, table=table
            )
            for name, meaning in _COUNTS:
                out.counter(f"{name}_total", meaning, self._sums[name], table=table)
            for name, seconds in self._steps.items():
                out.summary("step_seconds", _STEP, round(seconds, 6), self._batches, table=table, step=name)
            out.counter(
                "restarts_total", "Batches tried again because Spark failed.", self._restarts, table=table
            )
            if self._committed is not None:
                out.gauge(
                    "last_commit_timestamp_seconds",
                    "When the last batch was done, in seconds since 1970.",
                    round(self._committed, 3),
                    table=table,
                )
            positions = {table: dict(self._next)}
        out.positions(positions[table], self._probe.look(positions).get(table), table=table)
        return out.text()


@contextmanager
def reporting(landing: Landing) -> Iterator[JobMetrics]:
    """A job's counts, served where ``landing.metrics`` says for as long as the block runs."""
    probe = LagProbe(landing.bootstrap_servers, landing.client)
    try:
        metrics = JobMetrics(landing.table, probe)
        with served(landing.metrics_listener, metrics.render):
            yield metrics
    finally:
        probe.close()
