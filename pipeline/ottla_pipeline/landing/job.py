"""A landing job: Spark runs the tasks, and each batch gets into the table in one commit.

This order makes it exactly once: tasks write files; the table's commit takes them together with the offsets, if it goes
on exactly where the table ends; dead letters are delivered; the group's offsets are committed. A run that is killed
anywhere goes on from what the table says.
"""

from __future__ import annotations

import logging
import os
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING

from ottla_client.errors import ClientError
from ottla_pipeline.landing.batch_loop import BatchLoop
from ottla_pipeline.landing.batches import BatchCommitter
from ottla_pipeline.landing.dead_letter_sink import sink_of
from ottla_pipeline.landing.errors import LandingError, TableChanged
from ottla_pipeline.landing.evolution import NewColumns
from ottla_pipeline.landing.failures import Crashed, JavaGone, reason, spark_errors
from ottla_pipeline.landing.job_metrics import JobMetrics, reporting
from ottla_pipeline.landing.job_plan import JobPlan, plan_job, with_new
from ottla_pipeline.landing.schema import to_ddl
from ottla_pipeline.landing.settings import BatchDone, Landed, Landing
from ottla_pipeline.landing.tables import Table
from ottla_pipeline.landing.tables.outside import one_line
from ottla_pipeline.reading.errors import ReadError
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.registering import use_this_python

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

log = logging.getLogger("ottla_pipeline")

_LONGEST_WAIT = 30
"""Most seconds before another try; the first waits one, and each following one twice as long."""

OnBatch = Callable[[BatchDone], None]


def land(
    landing: Landing,
    spark: SparkSession | None = None,
    on_batch: OnBatch | None = None,
    *,
    stop: threading.Event | None = None,
) -> Landed:
    """Land topics in a table up to where they end now (``available-now``), or until ``stop`` is set or Ctrl-C.

    Without ``spark`` it uses the active session, or starts one. ``on_batch`` gets every batch once it is in the table;
    it runs between batches. Raises LandingError: one line that says what went wrong. What was committed stays; the next
    run goes on from it.
    """
    _check_session(spark)
    if landing.checkpoint is not None:
        log.warning(
            "checkpoint is %s, which has no effect: a job resumes at the offsets in its table",
            landing.checkpoint,
        )
    try:
        with (
            one_line(landing.table),
            ClusterQueries(landing.bootstrap_servers, landing.client) as cluster,
            reporting(landing) as metrics,
        ):
            return _Job(landing, cluster, metrics, on_batch, stop or threading.Event()).run(spark)
    except (SourceError, ClientError, ReadError) as error:
        raise LandingError(str(error)) from error


class _Job:
    def __init__(
        self,
        landing: Landing,
        cluster: ClusterQueries,
        metrics: JobMetrics,
        on_batch: OnBatch | None,
        stop: threading.Event,
    ) -> None:
        self._landing = landing
        self._cluster = cluster
        self._metrics = metrics
        self._on_batch = on_batch
        self._stop = stop
        self._run_id = uuid.uuid4().hex
        self._landed = Landed()
        self._crashes = 0
        self._numbers = count()

    def run(self, spark: SparkSession | None) -> Landed:
        """From the table's end to where the job ends."""
        began = time.perf_counter()
        while True:
            try:
                table = self._run(spark)
                break
            except TableChanged as change:
                log.warning("%s; the job goes on with the table as it is now", change)
        return replace(self._landed, offsets=table.offsets(), seconds=time.perf_counter() - began)

    def _run(self, spark: SparkSession | None) -> Table:
        """Until the job ends, or another program changes the table: all plans are made again then."""
        landing = self._landing
        plan = plan_job(landing, self._cluster, self._run_id)
        sink = sink_of(landing, plan.table)
        committer = BatchCommitter(landing, plan, self._cluster, sink, self._run_id, self._done)
        loop = BatchLoop(landing, self._cluster, committer, self._stop, self._numbers)
        try:
            committer.start()
            self._metrics.at(plan.offsets)
            active = spark or _session()
            _check_session(active)
            use_this_python(active.sparkContext)
            while not self._stop.is_set():
                try:
                    self._in_thread(active, lambda: loop.run(active, plan))
                    break
                except NewColumns as news:
                    self._add_columns(plan, news)
                except Crashed as crash:
                    self._wait_after(crash)
                # What a crash left undone is known from the table alone.
                committer.start()
                plan.offsets |= committer.offsets()
                self._metrics.at(plan.offsets)
        finally:
            committer.close()
        return plan.table

    def _in_thread(self, spark: SparkSession, work: Callable[[], None]) -> None:
        """Run ``work`` in a thread, where Ctrl-C can't interrupt a commit; Ctrl-C cancels Spark's tasks."""
        from pyspark import InheritableThread

        raised: list[BaseException] = []

        def run() -> None:
            try:
                with spark_errors():
                    spark.sparkContext.setJobGroup(
                        self._run_id, "a landing job's tasks", interruptOnCancel=True
                    )
                work()
            except BaseException as error:
                raised.append(error)

        thread = InheritableThread(target=run, name="ottla-landing")
        thread.start()
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                self._stop.set()
                spark.sparkContext.cancelJobGroup(self._run_id)
        for error in raised:
            # Tasks that were cancelled fail.
            if not (self._stop.is_set() and isinstance(error, Crashed)):
                raise error

    def _add_columns(self, plan: JobPlan, news: NewColumns) -> None:
        plan.values = with_new(self._landing, plan.table, plan.values, news.schema)
        log.warning("new columns in %s: %s", plan.table.name, to_ddl(news.schema))

    def _wait_after(self, crash: Crashed) -> None:
        self._crashes += 1
        if self._crashes > self._landing.restarts or isinstance(crash, JavaGone):
            raise LandingError(str(crash)) from crash
        self._metrics.restarted()
        log.warning("%s; started again (%d of %d)", crash, self._crashes, self._landing.restarts)
        # Several crashes in a row mostly mean that the machine is too busy to start Spark's workers in time.
        self._stop.wait(min(2 ** (self._crashes - 1), _LONGEST_WAIT))

    def _done(self, done: BatchDone) -> None:
        self._crashes = 0
        self._metrics.batch(done)
        landed = self._landed
        self._landed = replace(
            landed,
            batches=landed.batches + 1,
            rows=landed.rows + done.rows,
            bytes=landed.bytes + done.bytes,
            files=landed.files + done.files,
            dead_letters=landed.dead_letters + done.dead_letters,
        )
        if self._on_batch is not None:
            self._on_batch(done)


def _check_session(spark: SparkSession | None) -> None:
    """Raises LandingError for a session of Spark Connect, which runs no tasks of a program's own."""
    if spark is not None and type(spark).__module__.startswith("pyspark.sql.connect"):
        raise LandingError(
            "land() runs tasks of its own, which Spark Connect can't: use a session of a master "
            '(SparkSession.builder.master(…)), or format("ottla") to read over Spark Connect'
        )


def _session() -> SparkSession:
    """Spark's active session, or a new one. Raises LandingError if Java is missing, or Spark doesn't start."""
    from pyspark.sql import SparkSession

    active = SparkSession.getActiveSession()
    if active is not None:
        return active
    home = os.environ.get("JAVA_HOME")
    if not (shutil.which("java") or (home and (Path(home) / "bin" / "java").exists())):
        raise LandingError("Spark needs Java 17 or later: install one, or set JAVA_HOME to it")
    # Spark's workers run the first python3 on the PATH otherwise, which may lack Ottla.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    try:
        return SparkSession.builder.appName("ottla landing").getOrCreate()
    except Exception as error:
        raise LandingError(f"Spark does not start: {reason(str(error))}") from error
