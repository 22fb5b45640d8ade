"""The stream reader of ``format("ottla")``: Spark's questions about micro-batches, answered by a planner.

Spark runs one in its own process for each run of a query, and calls it in this order: ``initialOffset``,
``latestOffset`` (where the batch ends), ``partitions`` (often twice), and ``commit`` of a batch when it builds the next
one. Copies of it read in the tasks.

The start that Spark passes to ``latestOffset`` has always been written to the sink: Spark builds a batch only when the
last one is done. So offsets are committed to the group at that point, under ``Trigger.AvailableNow`` including those of
the last batch; ``commit`` would come a batch later, or never. The next run commits what a stopped run left out.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from time import monotonic
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from .cluster_queries import ClusterQueries
from .errors import one_line_errors
from .groups import GroupCommits
from .offsets import Offsets
from .options import SourceOptions
from .planner import BatchPlanner
from .tasks import RangePartition, batches
from .workers import acknowledge_now

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("ottla_pipeline")


class OttlaStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Owned by the process that Spark runs it in; one thread's.

    A copy goes to the tasks with ``options`` and ``columns`` alone; it connects at the first question.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._disconnected()

    def _disconnected(self) -> None:
        self._clock: Callable[[], float] = monotonic
        self._cluster: ClusterQueries | None = None
        self._planner: BatchPlanner | None = None
        self._commits: GroupCommits | None = None
        self._initial: Offsets | None = None
        self._planned: tuple[str, list[InputPartition]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        """Return what a task needs: no connections."""
        return {"options": self.options, "columns": self.columns}

    def __setstate__(self, state: dict[str, Any]) -> None:
        acknowledge_now()
        self.__dict__.update(state)
        self._disconnected()

    @property
    def cluster(self) -> ClusterQueries:
        if self._cluster is None:
            self._cluster = ClusterQueries(self.options.bootstrap_servers, self.options.client)
        return self._cluster

    @property
    def planner(self) -> BatchPlanner:
        if self._planner is None:
            self._planner = BatchPlanner(self.cluster, self.options, self._clock)
        return self._planner

    @one_line_errors()
    def initialOffset(self) -> dict[str, Any]:
        """The offsets at which a query begins. Spark calls it twice, and again after a restart: see ``offsets``."""
        if self._initial is None:
            self._initial = self.planner.start()
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The strongest limit: Spark can't express several at once. The planner keeps to all of them."""
        wanted = self.options.limits
        if wanted.max_offsets is not None:
            return ReadMaxRows(wanted.max_offsets)
        if wanted.max_bytes is not None:
            return ReadMaxBytes(wanted.max_bytes)
        if wanted.min_offsets is not None:
            return ReadMinRows(wanted.min_offsets)
        return ReadAllAvailable()

    @one_line_errors()
    def prepareForTriggerAvailableNow(self) -> None:
        """End the query at what exists now."""
        self.planner.stop_at_latest()

    @one_line_errors()
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """The end of the next batch; ``start`` itself where there is nothing to read."""
        began = Offsets.of_json(start)
        self._done(began)
        # Trigger.Once wants everything, whatever the limits. Without limits, Spark always asks for everything.
        end = self.planner.next_end(began, limited=not isinstance(limit, ReadAllAvailable))
        return start if end is began else end.to_json()

    @one_line_errors()
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """The ends of the logs at the last look, for the query's progress."""
        return None if self.planner.latest is None else self.planner.latest.to_json()

    @one_line_errors()
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark also calls it with equal offsets, to report where a query goes on."""
        if start == end:
            return []
        asked = f"{start} {end}"
        if self._planned is None or self._planned[0] != asked:
            self._planned = (asked, self._plan(Offsets.of_json(start), Offsets.of_json(end)))
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of one of ``partitions``."""
        return batches(partition, self.options, self.columns)

    @one_line_errors()
    def commit(self, end: dict[str, Any]) -> None:
        """Commit a finished batch to the group; Spark calls it when it has built the next one."""
        self._done(Offsets.of_json(end))

    def stop(self) -> None:
        """Close the connections. Spark may also end the process without calling this."""
        if self._cluster is not None:
            self._cluster.close()

    def _plan(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        if start.first and end.first:
            return []
        if start.first and end.since is not None:
            start = Offsets(end.since, end.ids, first=True)
        self._done(start)
        return [RangePartition(ranges) for ranges in self.planner.tasks(start, end)]

    def _done(self, offsets: Offsets) -> None:
        """Commit offsets up to which everything is in the sink."""
        if offsets.first or not self.options.commit_offsets or self.options.group is None:
            return
        if self._commits is None:
            self._commits = GroupCommits(
                self.cluster, self.options.group, required=self.options.commit_required
            )
        self._commits.done(offsets.of)
