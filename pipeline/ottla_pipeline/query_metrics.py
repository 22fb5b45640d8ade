"""A listener that serves metrics of Spark's streaming queries at ``/metrics``.

Spark's Python data sources can't report metrics, but Spark reports what each batch was: rows, offsets, durations, and
what the query observes. This listener adds how far the query is behind, in records and in seconds: it asks brokers when
it is scraped. It also works for queries of Spark's own connector::

    options = {"kafka.bootstrap.servers": "127.0.0.1:9092", "subscribe": "orders"}
    with QueryMetrics(options, "9406") as metrics:
        spark.streams.addListener(metrics)
        query = spark.readStream.format("ottla").options(**options).load()….start()
        query.awaitTermination()
        spark.streams.removeListener(metrics)
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from threading import Lock
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self

from pyspark.sql.streaming.listener import StreamingQueryListener

from ottla_client import TopicPartition

from .listener import offsets_of, reads
from .metrics.exposition import Exposition
from .metrics.lag import LagProbe
from .metrics.server import Address, check_listener, served
from .source.errors import OptionError
from .source.options import resolve

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import (
        QueryIdleEvent,
        QueryProgressEvent,
        QueryStartedEvent,
        QueryTerminatedEvent,
    )

_PREFIX: Final = "ottla_query_"
MOST_QUERIES: Final = 100
"""Queries that are remembered; the one that ended first is forgotten for another."""
MOST_OBSERVED: Final = 100
"""Observed numbers of a query that are shown."""
_EXECUTED: Final = "addBatch"
"""The step that only a batch with data has."""
_WHOLE: Final = "triggerExecution"
"""The sum of the steps, which is shown under this name too."""


@dataclass(slots=True)
class _Query:
    """A query's last known state; ``steps`` has seconds and counts by the names of Spark's ``durationMs``."""

    id: str
    name: str
    active: bool = True
    batches: int = 0
    rows: int = 0
    failures: int = 0
    steps: dict[str, tuple[float, int]] = field(default_factory=dict)
    committed: float | None = None
    next: dict[TopicPartition, int] = field(default_factory=dict)
    observed: dict[tuple[str, str], float] = field(default_factory=dict)


class QueryMetrics(StreamingQueryListener):
    """Counts every query of a session that reads these topics, or the named one, and serves the counts.

    Spark calls it in one thread, a scraper in another. Enter it, or call :meth:`start` and :meth:`close`.

    Attributes:
        address: host and port in use; None before :meth:`start`, and if the port is taken.
    """

    def __init__(self, options: Mapping[str, str], listener: str, query: str | None = None) -> None:
        """``options``: the reader's; ``listener``: ``[HOST:]PORT``; ``query``: a query's name. Raises OptionError."""
        made = resolve(options, stream=True)
        if why := check_listener(listener):
            raise OptionError(why)
        self.address: Address | None = None
        self._topics = made.topics
        self._query = query
        self._listener = listener
        self._probe = LagProbe(made.bootstrap_servers, made.client)
        self._lock = Lock()
        self._queries: dict[str, _Query] = {}
        self._open = ExitStack()

    def start(self) -> None:
        """Serve the metrics."""
        self.address = self._open.enter_context(served(self._listener, self.render))

    def close(self) -> None:
        """Serve them no longer, and close the connections."""
        self._open.close()
        self._probe.close()
        self.address = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Do nothing: what the query reads is known with its first batch."""

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Count a batch."""
        progress = json.loads(event.progress.json)
        if self._query is not None and progress.get("name") != self._query:
            return
        sources = list(self._sources(progress))
        if not sources:
            return
        with self._lock:
            query = self._known(progress["id"], progress.get("name") or progress["id"])
            query.active = True
            for offsets, rows in sources:
                query.next.update(offsets)
                query.rows += rows
            durations = progress.get("durationMs", {})
            if _EXECUTED not in durations:
                return
            query.batches += 1
            for step, milliseconds in durations.items():
                total, count = query.steps.get(step, (0.0, 0))
                query.steps[step] = total + milliseconds / 1000, count + 1
            began = datetime.fromisoformat(progress["timestamp"]).timestamp()
            query.committed = began + durations.get(_WHOLE, 0) / 1000
            query.observed = dict(_observed(progress.get("observedMetrics", {})))

    def onQueryIdle(self, event: QueryIdleEvent) -> None:
        """Do nothing: there was nothing to read."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Show the query as ended, and whether it failed."""
        with self._lock:
            for query in self._queries.values():
                if query.id == str(event.id):
                    query.active = False
                    query.failures += event.exception is not None

    def _sources(self, progress: Mapping[str, Any]) -> Iterator[tuple[Mapping[TopicPartition, int], int]]:
        """The next offsets of each source that reads these topics, and the number of its rows."""
        for source in progress["sources"]:
            offsets = offsets_of(source.get("endOffset"))
            if offsets and all(reads(self._topics, partition) for partition in offsets):
                yield offsets, int(source.get("numInputRows", 0))

    def _known(self, id: str, name: str) -> _Query:
        """A query by its name. One of that name with another checkpoint is another query."""
        query = self._queries.get(name)
        if query is None or query.id != id:
            if query is None and len(self._queries) >= MOST_QUERIES:
                ended = (each for each, its in self._queries.items() if not its.active)
                del self._queries[next(ended, next(iter(self._queries)))]
            query = self._queries[name] = _Query(id, name)
        return query

    def render(self) -> bytes:
        """The text of a scrape. It asks brokers where the topics end."""
        out = Exposition(_PREFIX)
        with self._lock:
            queries = list(self._queries.values())
            for query in queries:
                _render(out, query)
            positions = {query.name: dict(query.next) for query in queries}
        behind = self._probe.look(positions)
        for name, offsets in positions.items():
            out.positions(offsets, behind.get(name), query=name)
        return out.text()


def _render(out: Exposition, query: _Query) -> None:
    name = query.name
    out.gauge("active", "1 while the query runs, else 0.", int(query.active), query=name)
    out.counter("failures_total", "How often the query ended with an error.", query.failures, query=name)
    out.counter("batches_total", "Batches with data.", query.batches, query=name)
    out.counter("rows_total", "Rows that the query has read from topics.", query.rows, query=name)
    for step, (seconds, count) in query.steps.items():
        out.summary(
            "step_seconds",
            "Time that each step of a batch took, under Spark's names (durationMs).",
            round(seconds, 6),
            count,
            query=name,
            step=step,
        )
    if query.committed is not None:
        out.gauge(
            "last_commit_timestamp_seconds",
            "When the last batch was done, in seconds since 1970.",
            round(query.committed, 3),
            query=name,
        )
    for (observation, column), value in query.observed.items():
        out.gauge(
            "observed",
            "Numbers of the last batch that the query observes (DataFrame.observe).",
            value,
            query=name,
            observation=observation,
            column=column,
        )


def _observed(given: Mapping[str, Any]) -> Iterator[tuple[tuple[str, str], float]]:
    """The numbers in what a query observes, at most so many."""
    left = MOST_OBSERVED
    for observation, columns in given.items():
        for column, value in columns.items() if isinstance(columns, dict) else ():
            if isinstance(value, int | float) and not isinstance(value, bool) and left:
                left -= 1
                yield (observation, column), value
