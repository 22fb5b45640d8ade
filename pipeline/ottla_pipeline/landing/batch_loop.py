"""A job's batches, one after the other: the driver plans each one, Spark runs its tasks, one commit brings it in.

The table is the only checkpoint, so this uses no stream of Spark's: one would start three Python processes before its
first task, and keep the offsets a second time (docs/decisions/0006).
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING

from ottla_pipeline.landing.batches import BatchCommitter
from ottla_pipeline.landing.errors import TableChanged
from ottla_pipeline.landing.failures import JavaGone, java_is_gone, spark_errors
from ottla_pipeline.landing.job_plan import JobPlan, source_options, task_of
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.task import COLUMNS, Report, TaskSettings, land_ranges
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.offsets import Offsets
from ottla_pipeline.source.planner import BatchPlanner
from ottla_pipeline.source.workers import in_worker

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from ottla_pipeline.reading import OffsetRange, ReadSettings

_IDLE = 0.1
"""Least seconds between two looks at logs that have nothing new."""


class BatchLoop:
    """The batches of one run, numbered by ``numbers``, also when it starts again after a crash."""

    def __init__(
        self,
        landing: Landing,
        cluster: ClusterQueries,
        committer: BatchCommitter,
        stop: threading.Event,
        numbers: Iterator[int],
    ) -> None:
        self._landing = landing
        self._cluster = cluster
        self._committer = committer
        self._stop = stop
        self._numbers = numbers

    def run(self, spark: SparkSession, plan: JobPlan) -> None:
        """Land batches from ``plan.offsets`` on: up to where the logs end now, or by the trigger until ``stop`` is set.

        Raises Crashed for Spark's failures, TableChanged if another program has changed the table's columns or
        partitioning, or rolled it back, and what planning and commits raise.
        """
        landing = self._landing
        options = source_options(landing)
        layout = plan.table.layout().version
        planner = BatchPlanner(self._cluster, options)
        if landing.available_now:
            planner.stop_at_latest()
        at = Offsets(plan.offsets, plan.ids)
        while not self._stop.is_set():
            began = time.monotonic()
            end = planner.next_end(at)
            if end is not at and (tasks := planner.tasks(at, end)):
                self._committer.look()
                if plan.table.layout().version != layout:
                    raise TableChanged(
                        f"another program has changed columns or partitioning of {plan.table.name}"
                    )
                task = task_of(landing, plan.table, plan.values)
                work = partial(_land, task, options.read_settings(COLUMNS))
                self._committer.batch(partial(_run, spark, tasks, work), next(self._numbers))
            if landing.available_now:
                if end is at:
                    return
            else:
                if java_is_gone():  # Nothing else would notice while there is nothing to land.
                    raise JavaGone
                idle = _IDLE if end is at else 0.0
                self._stop.wait(max(idle, began + float(landing.trigger) - time.monotonic()))
            at = end


def _run(
    spark: SparkSession,
    tasks: tuple[tuple[OffsetRange, ...], ...],
    work: Callable[[Iterable[tuple[OffsetRange, ...]]], Iterator[Report]],
) -> list[Report]:
    with spark_errors():
        return spark.sparkContext.parallelize(tasks, len(tasks)).mapPartitions(work).collect()


def _land(
    task: TaskSettings, reading: ReadSettings, tasks: Iterable[tuple[OffsetRange, ...]]
) -> Iterator[Report]:
    for ranges in tasks:
        with in_worker():
            reports = land_ranges(task, ranges, reading)
        yield from reports
