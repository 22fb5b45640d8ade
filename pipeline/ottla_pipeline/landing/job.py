"""A landing job: Spark runs the tasks, each batch gets into the table in one commit.

A job up to where the topics end now plans its batches itself (``passing``). One that goes on, or is to have a
checkpoint of Spark's, is a query of Spark's Structured Streaming.

The order is what makes it exactly once: tasks write files; the table's commit takes them, together with the offsets, if
it goes on exactly where the table ends; dead letters are brought to where they go; the group's offsets are committed;
Spark's checkpoint is last, and needn't be there at all.
"""

from __future__ import annotations

import json
import logging
import shutil
import tempfile
import threading
import time
import uuid
from collections.abc import Callable
from dataclasses import replace
from typing import TYPE_CHECKING

from ottla_client.errors import ClientError
from ottla_pipeline.landing import failures, passing
from ottla_pipeline.landing.batches import BatchCommitter
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.failures import Crashed, Grown, JavaGone
from ottla_pipeline.landing.graves import grave_of
from ottla_pipeline.landing.parsing import formats
from ottla_pipeline.landing.settings import BatchDone, Landed, Landing
from ottla_pipeline.landing.source import OPTION, LandingSource
from ottla_pipeline.landing.start import Beginning, begin, columns, task_of
from ottla_pipeline.source.broker import Broker
from ottla_pipeline.source.errors import SourceError
from ottla_pipeline.source.offsets import by_topic
from ottla_pipeline.source.registering import register

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

log = logging.getLogger("ottla_pipeline")

_LOOK = 1
"""Seconds between looks whether the job is to stop."""

_LONGEST_WAIT = 30
"""Seconds before another try; the first waits one, and each twice as long as the one before."""

OnBatch = Callable[[BatchDone], None]


def land(
    landing: Landing,
    spark: SparkSession | None = None,
    on_batch: OnBatch | None = None,
    *,
    stop: threading.Event | None = None,
) -> Landed:
    """Land topics in a table until there is no more (``available-now``), or until ``stop`` is set or Ctrl-C.

    Without ``spark`` a session is started, or the one that there is taken. ``on_batch`` gets every batch when it is in
    the table; it runs between batches.

    :raises LandingError: a line that says what went wrong. What was committed stays, and the next run goes on from it.
    """
    try:
        with Broker(landing.bootstrap_servers, landing.client) as broker:
            return _Job(landing, broker, spark, on_batch, stop or threading.Event()).run()
    except (SourceError, ClientError) as error:
        raise LandingError(str(error)) from error


class _Job:
    """One run."""

    def __init__(
        self,
        landing: Landing,
        broker: Broker,
        spark: SparkSession | None,
        on_batch: OnBatch | None,
        stop: threading.Event,
    ) -> None:
        self._landing = landing
        self._broker = broker
        self._spark = spark
        self._on_batch = on_batch
        self._stop = stop
        self._run_id = uuid.uuid4().hex
        self._landed = Landed()
        self._crashes = 0

    def run(self) -> Landed:
        """From the table's end to where the job ends."""
        began = time.perf_counter()
        landing = self._landing
        beginning = begin(landing, self._broker, self._run_id)
        grave = grave_of(landing, beginning.table)
        committer = BatchCommitter(landing, beginning, self._broker, grave, self._run_id, self._done)
        try:
            committer.start()
            spark = self._spark or failures.session()
            while not self._stop.is_set():
                try:
                    if landing.available_now and landing.checkpoint is None:
                        self._pass(spark, beginning, committer)
                    else:
                        self._query(spark, beginning, committer)
                    break
                except Grown as news:
                    self._grow(beginning, news)
                except Crashed as crash:
                    self._again(crash)
                # The table alone says what has been landed.
                committer.start()
                beginning.offsets |= committer.offsets()
        finally:
            committer.close()
        return replace(self._landed, offsets=beginning.table.offsets(), seconds=time.perf_counter() - began)

    def _pass(self, spark: SparkSession, beginning: Beginning, committer: BatchCommitter) -> None:
        """All that there is now, without a query of Spark's."""
        from pyspark import InheritableThread

        landing = self._landing
        task = task_of(landing, beginning.table, beginning.values, bury=landing.dead_letters is not None)
        failed: list[BaseException] = []

        def batches() -> None:
            spark.sparkContext.setJobGroup(self._run_id, "a landing job's tasks", interruptOnCancel=True)
            try:
                passing.run(spark, landing, beginning, task, committer.batch, self._stop)
            except BaseException as error:
                failed.append(error)

        # In a thread of its own Ctrl-C doesn't come in the middle of a commit.
        thread = InheritableThread(target=batches, name="ottla-landing")
        thread.start()
        while thread.is_alive():
            try:
                thread.join()
            except KeyboardInterrupt:
                # At once: tasks need not come to their end, a commit does.
                self._stop.set()
                spark.sparkContext.cancelJobGroup(self._run_id)
        for error in failed:
            if not isinstance(error, Exception):
                raise error
            told = failures.explained(error, failed, landing)
            if not (self._stop.is_set() and isinstance(told, Crashed)):
                raise told from None if told is error else error

    def _query(self, spark: SparkSession, beginning: Beginning, committer: BatchCommitter) -> None:
        """One query of Spark's, to its end."""
        landing = self._landing
        starting = json.dumps(by_topic(beginning.offsets))
        task = task_of(landing, beginning.table, beginning.values, bury=landing.dead_letters is not None)
        temporary = tempfile.mkdtemp(prefix="ottla-landing-") if landing.checkpoint is None else None
        # Of the driver alone, whatever file system Spark takes for its own.
        checkpoint = landing.checkpoint or f"file://{temporary}"
        failed: list[BaseException] = []

        # Held by the batch under way, and by who ends the query: it is not ended in the middle of a commit.
        turn = threading.Lock()

        def batch(frame: DataFrame, batch_id: int) -> None:
            with turn:
                if self._stop.is_set():
                    return
                try:
                    context = frame.sparkSession.sparkContext
                    query_id = context.getLocalProperty("sql.streaming.queryId") or ""
                    committer.batch(lambda: [row[0] for row in frame.collect()], query_id, batch_id)
                except BaseException as error:
                    failed.append(error)
                    raise

        try:
            register(spark, LandingSource)
            stream = spark.readStream.format(LandingSource.name()).options(**landing.source_options(starting))
            writer = stream.option(OPTION, task.to_text()).load().writeStream.foreachBatch(batch)
            if landing.available_now:
                writer = writer.trigger(availableNow=True)
            else:
                writer = writer.trigger(processingTime=f"{round(float(landing.trigger) * 1000)} milliseconds")
            query = writer.option("checkpointLocation", checkpoint).start()
            try:
                while not self._stop.is_set() and not query.awaitTermination(_LOOK):
                    continue
                if not self._stop.is_set() and not landing.available_now:
                    raise Crashed("Spark's query was stopped by somebody else")
            except KeyboardInterrupt:
                self._stop.set()
            finally:
                with turn:
                    query.stop()
        except Crashed:
            raise
        except Exception as error:
            raise failures.explained(error, failed, landing) from error
        finally:
            if temporary is not None:
                shutil.rmtree(temporary, ignore_errors=True)

    def _grow(self, beginning: Beginning, news: Grown) -> None:
        """Records have fields that the table has no columns for: add them, and read the batch again."""
        beginning.values = formats.with_columns(beginning.values, news.schema)
        columns(self._landing, beginning.table, formats.columns(beginning.values), exists=True)
        log.warning("new columns in %s: %s", beginning.table.name, ", ".join(news.schema.names))

    def _again(self, crash: Crashed) -> None:
        self._crashes += 1
        if self._crashes > self._landing.restarts or isinstance(crash, JavaGone):
            raise LandingError(str(crash)) from crash
        log.warning("%s; started again (%d of %d)", crash, self._crashes, self._landing.restarts)
        # Most crashes of several in a row are of a machine that is too busy to start Spark's workers in time.
        self._stop.wait(min(2 ** (self._crashes - 1), _LONGEST_WAIT))

    def _done(self, done: BatchDone) -> None:
        self._crashes = 0
        landed = self._landed
        self._landed = replace(
            landed,
            batches=landed.batches + (not done.skipped),
            skipped=landed.skipped + done.skipped,
            rows=landed.rows + done.rows,
            bytes=landed.bytes + done.bytes,
            files=landed.files + done.files,
            dead_letters=landed.dead_letters + done.dead_letters,
        )
        if self._on_batch is not None:
            self._on_batch(done)
