"""Parses dead letters again, for example with another schema, and lands those that fit.

The commit that lands them notes what was replayed: for a table of dead letters the files that were read and those with
what still fails, for a topic the offsets up to which it was read. So each is landed exactly once; after a crash the
next run first carries out the note. It runs in this process, without Spark, in bounded memory.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from ottla_client.errors import ClientError
from ottla_pipeline.landing import deadletters
from ottla_pipeline.landing.dead_letter_sink import DeadLetterSink, TableSink, sink_of
from ottla_pipeline.landing.errors import BadSetting, LandingError
from ottla_pipeline.landing.files import FileWriter
from ottla_pipeline.landing.job_plan import columns, table_of, task_of, values_of, with_new
from ottla_pipeline.landing.parsing import ParserSettings, formats, parser
from ottla_pipeline.landing.parsing.shapes import Shape
from ottla_pipeline.landing.settings import Landing
from ottla_pipeline.landing.tables import Commit, DataFile, Table
from ottla_pipeline.landing.tables.outside import one_line
from ottla_pipeline.landing.task import fitting
from ottla_pipeline.reading import OffsetRange, ReadError, ReadSettings, read
from ottla_pipeline.source.cluster_queries import ClusterQueries
from ottla_pipeline.source.errors import SourceError

NOTE = "replayed"
_ROWS = 10_000
"""Dead letters that are parsed together."""


@dataclass(frozen=True)
class Replayed:
    landed: int = 0
    failed: int = 0
    """Still dead letters, with the new errors."""
    files: int = 0


def replay(landing: Landing) -> Replayed:
    """Parse the dead letters of a landing again, and land what fits.

    A table of dead letters then has only what still fails; in a topic, what still fails is sent again. Raises
    LandingError: one line that says what went wrong.
    """
    if landing.dead_letters is None:
        raise BadSetting("dead_letters doesn't say where they are: topic:NAME or table:PATH")
    try:
        with one_line(landing.table):
            table = table_of(landing)
            if not table.exists():
                raise LandingError(f"the table {landing.table} to land dead letters in doesn't exist")
            return _Replay(landing, table).run()
    except (SourceError, ClientError, ReadError) as error:
        raise LandingError(str(error)) from error


class _Replay:
    def __init__(self, landing: Landing, table: Table) -> None:
        self._landing = landing
        self._table = table
        table.refresh()
        table.check()
        table.check_rows()
        sink = sink_of(landing, table)
        assert sink is not None
        self._sink: DeadLetterSink = sink

    def run(self) -> Replayed:
        """All dead letters that there are now."""
        try:
            self._sink.deliver_pending()
            if isinstance(self._sink, TableSink):
                self._sink.finish_replay(NOTE)
            self._table.refresh()
            before = self._table.state().notes.get(NOTE)
            values = values_of(self._landing, self._table, _no_sample)
            while True:
                columns(self._landing, self._table, formats.columns(values), exists=True)
                done, unknown = self._once(values, before)
                if unknown is None:
                    return done
                values = with_new(self._landing, self._table, values, unknown)
        finally:
            self._sink.close()

    def _once(self, values: ParserSettings, before: Any) -> tuple[Replayed, pa.Schema | None]:
        """One pass; if it finds columns that the table lacks, it returns them and lands nothing."""
        reading = (
            _FromTable(self._sink, self._table)
            if isinstance(self._sink, TableSink)
            else _FromTopic(self._landing, self._table, before)
        )
        pass_ = _Pass(self._landing, self._table, values)
        try:
            for rows in reading.rows():
                pass_.take(rows)
        except BaseException:
            pass_.abort()
            raise
        if len(new := pass_.unknown.columns()):
            pass_.abort()
            return Replayed(), new
        files, dead = pass_.close()
        if not pass_.landed and not pass_.failed:
            return Replayed(), None
        if isinstance(self._sink, TableSink):
            note = {
                "token": uuid.uuid4().hex,
                "removed": reading.taken(),
                "kept": [one.to_json() for one in dead],
            }
            notes: dict[str, Any] = {NOTE: note}
        else:
            notes = {NOTE: reading.taken(), **self._sink.note(dead)}
        self._table.commit(Commit(files=files, layout=pass_.layout, notes=notes, expects={NOTE: before}))
        self._table.refresh()
        if isinstance(self._sink, TableSink):
            self._sink.finish_replay(NOTE)
        else:
            self._sink.deliver_pending()
        return Replayed(pass_.landed, pass_.failed, len(files)), None


class _Pass:
    """Dead letters on their way into the table, or back."""

    def __init__(self, landing: Landing, table: Table, values: ParserSettings) -> None:
        task = task_of(landing, table, values)
        self._names = task.names
        self._parser = parser(values)
        self._fitting = fitting(task, self._parser)
        self.layout = task.layout.version
        self._files = FileWriter(*task.staging.open(), task.layout, task.files, "replay")
        assert task.dead is not None
        self._dead = FileWriter(*task.dead.open(), deadletters.LAYOUT, deadletters.FILES, "dead")
        self.landed = 0
        self.failed = 0
        self.unknown = Shape()

    def take(self, rows: pa.Table) -> None:
        """Parse some dead letters; batches that can't be decoded go back unchanged."""
        whole = pc.is_valid(rows.column("last_offset"))
        self._back(rows.filter(whole))
        rows = rows.filter(pc.invert(whole)).combine_chunks()
        if not len(rows):
            return
        values = rows.column("value").combine_chunks()
        parsed = self._parser.parse(values)
        if parsed.unknown is not None:
            self.unknown.merge(parsed.unknown)
        landed, failures = self._fitting.fit(parsed, self._origin(rows))
        if failures:
            failed = rows.take(pa.array([one.row for one in failures], pa.int64()))
            errors = pa.array([one.error for one in failures], pa.string())
            self._back(failed.set_column(failed.schema.get_field_index("error"), "error", errors))
        self._files.write(landed)
        self.landed += len(landed)

    def close(self) -> tuple[list[DataFile], list[DataFile]]:
        """Files for the table, and files of what still fails."""
        return self._files.close(), self._dead.close()

    def abort(self) -> None:
        self._files.abort()
        self._dead.abort()

    def _back(self, rows: pa.Table) -> None:
        self._dead.write(rows)
        self.failed += len(rows)

    def _origin(self, rows: pa.Table) -> pa.Table:
        wanted = ["topic", "partition", "offset", "timestamp"]
        if self._names.key is not None:
            wanted.append("key")
        return rows.select(wanted).rename_columns([one.name for one in self._names.fields()])


class _FromTable:
    """The dead letters in a table, of topics that were landed in the main table."""

    def __init__(self, sink: TableSink, table: Table) -> None:
        self._table = sink.table
        self._table.refresh()
        self._files = self._table.data_files()
        self._topics = _topics(table)

    def rows(self) -> Iterator[pa.Table]:
        """In pieces; skips files that also hold dead letters of other topics."""
        taken = []
        for one in self._files:
            topics = self._table.scan(["topic"], [one])
            if not all(pc.all(pc.is_in(batch.column(0), self._topics)).as_py() for batch in topics):
                continue
            taken.append(one)
            for batch in self._table.scan(deadletters.SCHEMA.names, [one]):
                rows = pa.Table.from_batches([batch]).cast(deadletters.SCHEMA)
                for at in range(0, len(rows), _ROWS):
                    yield rows.slice(at, _ROWS)
        self._files = taken

    def taken(self) -> list[str]:
        """The files that were read completely."""
        return [one.path for one in self._files]


class _FromTopic:
    """The dead letters in a topic, from where the last replay ended, of topics that were landed in the table."""

    def __init__(self, landing: Landing, table: Table, before: Any) -> None:
        self._landing = landing
        self._topics = _topics(table)
        self._topic = (landing.dead_letters or "").partition(":")[2]
        known: Mapping[str, int] = (
            (before or {}).get("ends", {}) if (before or {}).get("topic") == self._topic else {}
        )
        with ClusterQueries(landing.bootstrap_servers, landing.client) as cluster:
            partitions = cluster.partitions([self._topic])
            earliest, latest = cluster.earliest(partitions), cluster.latest(partitions)
            self._id = cluster.topic_ids([self._topic]).get(self._topic, "")
        self._ends = {at.partition: end for at, end in latest.items()}
        self._starts = {
            at.partition: min(max(first, known.get(str(at.partition), 0)), latest[at])
            for at, first in earliest.items()
        }

    def rows(self) -> Iterator[pa.Table]:
        """In pieces."""
        settings = ReadSettings(
            self._landing.bootstrap_servers,
            self._landing.client,
            ("key", "value", "offset", "timestamp", "headers"),
            segments="never",
        )
        for partition, start in self._starts.items():
            for batch in read(
                OffsetRange(self._topic, self._id, partition, start, self._ends[partition]), settings
            ):
                for at in range(0, len(batch), _ROWS):
                    rows = deadletters.from_records(batch.slice(at, _ROWS), self._topic, partition)
                    yield rows.filter(pc.is_in(rows.column("topic"), self._topics))

    def taken(self) -> dict[str, Any]:
        """Up to where it was read."""
        return {"topic": self._topic, "ends": {str(at): end for at, end in self._ends.items()}}


def _topics(table: Table) -> pa.Array:
    return pa.array(sorted({topic for topic, _ in table.state().ledger.landed}), pa.string())


def _no_sample() -> pa.Array:
    raise LandingError("the table has no columns to parse dead letters into: give a schema")
