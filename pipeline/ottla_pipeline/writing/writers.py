"""The classes that Spark calls: a writer for batches and one for streams, made on the driver and sent to the tasks."""

from __future__ import annotations

import logging
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING
from uuid import uuid4

from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)

from ottla_client.errors import ClientError
from ottla_pipeline.source import kafka
from ottla_pipeline.source.errors import OptionError, one_line_errors

from .errors import WriteError
from .identity import Identity, Kind
from .options import WriteOptions, resolve
from .rows import Layout

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql.types import StructType

    from .marks import Marks
    from .packing import PackedRows
    from .task import WriteTally

log = logging.getLogger("ottla_pipeline")

_QUERY = "sql.streaming.queryId"
_BATCH = "streaming.sql.batchId"
_RUN = "spark.jobGroup.id"
"""Spark's local properties in tasks of a streaming query; a run is one start of it."""
_UUID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")


@dataclass
class Written(WriterCommitMessage):
    """A task's report to the driver."""

    identity: Identity
    tally: WriteTally
    rows: list[PackedRows] = field(default_factory=list)
    """Those that the driver is to write, in a transaction."""


class _Writer:
    """Shared by batch and stream writers."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._options: WriteOptions = resolve(options)
        self._layout = Layout.of(schema, self._options.topic)

    def _write(self, batches: Iterator[pa.RecordBatch], identity: Identity) -> Written:
        if self._options.transactional:
            from .transaction import RowCollector

            collector = RowCollector(self._options, self._layout)
            collector.collect(batches)
            return Written(identity, collector.tally, collector.rows)
        from .task import TaskWriter

        return Written(identity, TaskWriter(self._options, self._layout, identity).write(batches))

    def _marks(self, identity: Identity) -> Marks:
        from .marks import Marks

        client = self._options.client
        return Marks(
            self._options.bootstrap_servers,
            kafka.client_options(client),
            identity.group,
            kafka.call_timeout(client),
        )

    def _transact(self, reports: Sequence[Written], what: str) -> None:
        """Write the rows of all tasks in one transaction."""
        from .transaction import BatchTransaction

        if not any(each.rows for each in reports):
            return
        identity = replace(reports[0].identity, task=0, attempt=0)
        rows = [each for report in reports for each in report.rows]
        self._log([BatchTransaction(self._options, identity).write(rows)], what)

    def _mark(self, reports: Sequence[Written]) -> None:
        """Mark the batch as done: all its tasks' records are acknowledged."""
        topics = set().union(*(each.tally.topics for each in reports))
        if topics and self._skipping:
            identity = reports[0].identity
            with self._marks(identity) as marks:
                marks.done(topics, identity.batch, identity.run)

    @property
    def _skipping(self) -> bool:
        return self._options.skip_replayed != "never"

    def _context(self) -> TaskContext:
        context = TaskContext.get()
        if context is None:
            raise WriteError("rows can be written in a task of Spark only")
        sends = self._skipping and not self._options.transactional
        if sends and context.getLocalProperty("spark.speculation") == "true":
            raise WriteError(
                "spark.speculation is on, and two tries of a task at once would write its rows twice: turn it off, or "
                "set skipReplayed=never"
            )
        return context

    def _report(self, messages: Sequence[WriterCommitMessage | None], what: str) -> list[Written]:
        """The tasks' reports; logs what a user should know."""
        reports = [each for each in messages if isinstance(each, Written)]
        self._log([each.tally for each in reports], what)
        return reports

    def _log(self, tallies: Sequence[WriteTally], what: str) -> None:
        """Log what a user should know."""
        for attribute, level, text in (
            ("already", logging.INFO, "%d rows for topic %s had been written by an earlier try of %s"),
            ("too_large", logging.WARNING, f"%d records for topic %s were too large, in %s: {self._aside()}"),
            (
                "unmatched",
                logging.WARNING,
                "%d records that an earlier try has written to topic %s are not among the rows of %s this time: the "
                "query's rows changed, or its tasks were cut otherwise",
            ),
        ):
            total: Counter[str] = Counter()
            for each in tallies:
                total.update(getattr(each, attribute))
            for topic, count in sorted(total.items()):
                if count:
                    log.log(level, text, count, topic, what)

    def _aside(self) -> str:
        dead = self._options.dead_letter_topic
        return "they were left out" if dead is None else f"they are in topic {dead}"


class BatchWriter(_Writer, DataSourceArrowWriter):
    """Writes a DataFrame once. A task that Spark tries again skips what its earlier tries have written.

    A whole write that is tried again does so, too, if the program names it, or inside ``foreachBatch``. Raises
    OptionError, WriteError.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        if overwrite:
            raise WriteError('topics can\'t be overwritten; the mode for writing to them is "append"')
        super().__init__(options, schema)
        self._id = str(uuid4())

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        return self._write(iterator, self._identity(self._context()))

    def _identity(self, context: TaskContext) -> Identity:
        task, attempt = context.partitionId(), context.attemptNumber()
        if self._options.transaction is not None:
            writer, batch = self._options.transaction
            return Identity(writer, batch, task, self._id, attempt, Kind.NAMED)
        query, number, run = (context.getLocalProperty(name) for name in (_QUERY, _BATCH, _RUN))
        if query is None or number is None or not self._skipping:
            return Identity(self._id, 0, task, "batch", attempt, Kind.ONCE)
        if run is None or _UUID.fullmatch(run) is None:
            raise WriteError(
                f"inside foreachBatch the job group is {run!r}, which Spark had set to the query's run: leave it, or "
                "set txnAppId and txnVersion"
            )
        topic = self._options.topic
        writer = query if topic is None else f"{query}-{topic}"
        return Identity(writer, int(number), task, f"{run}/{self._id}", attempt, Kind.IN_STREAM)

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        reports = self._report(messages, "this write")
        if self._options.transactional:
            self._transact(reports, "this write")
        elif reports and reports[0].identity.keeps_marks:
            self._mark(reports)
        elif any(each.tally.topics for each in reports):
            self._forget()

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        reports = self._report(messages, "this write")
        if self._options.transactional:
            log.warning("a write failed; its transaction was not committed, unless the error says otherwise")
            return
        writer = reports[0].identity.writer if reports else self._id
        log.warning(
            "a write failed; %d records of the tasks that were through, and some of others, stay in their topics with "
            "the header ottla.write beginning with %s",
            sum(each.tally.written.total() for each in reports),
            writer,
        )
        if not (reports and reports[0].identity.keeps_marks):
            self._forget()

    def _forget(self) -> None:
        """Delete the marks, which are no longer needed. A failure is only logged: brokers expire them."""
        if not self._skipping or self._options.transaction is not None:
            return
        identity = Identity(self._id, 0, 0, "batch", kind=Kind.ONCE)
        try:
            with self._marks(identity) as marks:
                marks.forget()
        except ClientError as error:
            log.info("the group %s stays until the broker forgets it: %s", identity.group, error)


class StreamWriter(_Writer, DataSourceStreamArrowWriter):
    """Writes micro-batches. One that runs again, after a failure or a restart, skips what it has written already.

    In complete mode each micro-batch has all rows, and writes all of them, as Spark's Kafka sink does. Raises
    OptionError, WriteError.
    """

    def __init__(self, options: Mapping[str, str], schema: StructType, overwrite: bool) -> None:
        super().__init__(options, schema)
        if self._options.transaction is not None:
            raise OptionError(
                "txnAppId is for batch writes; a stream's batches have its query's id and their number"
            )

    @one_line_errors()
    def write(self, iterator: Iterator[pa.RecordBatch]) -> Written:
        context = self._context()
        query, batch, run = (context.getLocalProperty(name) for name in (_QUERY, _BATCH, _RUN))
        if query is None or batch is None or run is None:
            raise WriteError("Spark doesn't say which streaming query and batch this task is of")
        identity = Identity(query, int(batch), context.partitionId(), run, context.attemptNumber())
        return self._write(iterator, identity)

    @one_line_errors()
    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reports = self._report(messages, f"batch {batchId}")
        if self._options.transactional:
            self._transact(reports, f"batch {batchId}")
        else:
            self._mark(reports)

    @one_line_errors()
    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        reports = self._report(messages, f"batch {batchId}")
        if self._options.transactional:
            log.warning(
                "batch %d failed; its transaction was not committed, unless the error says otherwise", batchId
            )
            return
        log.warning(
            "batch %d failed; %d records of the tasks that were through, and some of others, are in their topics%s",
            batchId,
            sum(each.tally.written.total() for each in reports),
            ", and the batch won't write them again" if self._skipping else "",
        )
