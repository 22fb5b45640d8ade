"""A task of a landing job: reads a range of a partition, parses it, writes it to files, and reports them.

Nothing that it writes is in the table before the driver commits it. Failures are in the report too: an exception in a
task would reach the user as a page of Java.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Self

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla_client import TopicPartition
from ottla_client.errors import ClientError
from ottla_pipeline.landing import deadletters
from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.files import FileSettings, FileWriter
from ottla_pipeline.landing.fitting import Fitting
from ottla_pipeline.landing.parsing import Failure, Parser, ParserSettings, parser
from ottla_pipeline.landing.parsing.formats import unpacked
from ottla_pipeline.landing.parsing.shapes import Shape
from ottla_pipeline.landing.tables.base import DataFile, Names
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.storage import Place
from ottla_pipeline.reading import Checksum, CorruptBatch, ReadError, read

if TYPE_CHECKING:
    from ottla_pipeline.reading import OffsetRange, ReadSettings

PIECE = 16 << 20
"""Bytes of values that are parsed at a time."""
COLUMNS = ("key", "value", "offset", "timestamp")
ENOUGH = 100_000
"""Records with new fields after which a task stops to look at more: the batch is read again once they have columns."""


@dataclass(frozen=True)
class TaskSettings:
    table: str
    """The user's name for it."""
    staging: Place
    """The folder for files."""
    schema: str
    """The table's columns, packed."""
    layout: Layout
    """The same columns, as files have them."""
    names: Names
    values: ParserSettings
    files: FileSettings
    dates: dict[str, str] = field(default_factory=dict)
    dead: Place | None = None
    """Where dead letters go first. None: a record that can't be parsed ends the job."""


@dataclass
class Report:
    """The outcome of a range; the driver gets one for each."""

    partition: TopicPartition
    topic_id: str
    start: int
    end: int
    count: int = 0
    total: int = 0
    dead: int = 0
    rows: int = 0
    bytes: int = 0
    files: list[DataFile] = field(default_factory=list)
    dead_files: list[DataFile] = field(default_factory=list)
    layout: str = ""
    """The version of the layout of ``files``."""
    unknown: str | None = None
    """The shape of the fields that records have and the table hasn't, as JSON."""
    failed: str | None = None
    """The reason why the range could not be landed; nothing of it was left behind."""
    seconds: float = 0.0


class _Refused(Exception):
    """The range can't be landed; the text is the user's."""


def land_ranges(task: TaskSettings, ranges: Iterable[OffsetRange], reading: ReadSettings) -> list[Report]:
    """Read, parse and write ranges into common files, which are in the last report.

    Raises for defects alone: any other failure is in the report of its range, the last one then, and no file is left.
    """
    reports: list[Report] = []
    with _Files(task) as files:
        for one in ranges:
            began = time.perf_counter()
            report = Report(one.topic_partition, one.topic_id, one.start, one.end, layout=task.layout.version)
            reports.append(report)
            try:
                lander = _Lander(task, report, files)
                lander.run(read(one, reading, lander.set_aside))
            except (ReadError, ClientError, LandingError, _Refused) as error:
                report.failed = str(error)
            report.seconds = time.perf_counter() - began
            if report.failed is not None:
                files.abort()
                return reports
        if reports:
            try:
                reports[-1].files, reports[-1].dead_files = files.close()
            except LandingError as error:
                reports[-1].failed = str(error)
                files.abort()
    return reports


class _Files:
    """The files of a task, which are deleted if it fails."""

    def __init__(self, task: TaskSettings) -> None:
        self.rows = FileWriter(*task.staging.open(), task.layout, task.files, "part")
        self.dead: FileWriter | None = None
        if task.dead is not None:
            self.dead = FileWriter(*task.dead.open(), deadletters.LAYOUT, deadletters.FILES, "dead")

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        if error is not None:
            self.abort()

    def close(self) -> tuple[list[DataFile], list[DataFile]]:
        return self.rows.close(), self.dead.close() if self.dead is not None else []

    def abort(self) -> None:
        self.rows.abort()
        if self.dead is not None:
            self.dead.abort()


class _Lander:
    """One range on its way into files."""

    def __init__(self, task: TaskSettings, report: Report, files: _Files) -> None:
        self._task = task
        self._report = report
        self._parser = parser(task.values)
        self._fitting = fitting(task, self._parser)
        self._files = files.rows
        self._dead = files.dead
        self._unknown = Shape()
        self._noted = 0

    def run(self, batches: Iterator[pa.RecordBatch]) -> None:
        """All of it; what is made is in the report."""
        checksum = Checksum()
        report = self._report
        for batch in batches:
            checksum += Checksum.of(batch)
            report.bytes += _size(batch.column("value")) + _size(batch.column("key"))
            for piece in _pieces(batch):
                self._land(piece)
            if self._noted >= ENOUGH and len(self._unknown.columns()):
                break
        report.count, report.total = checksum.count, checksum.total
        report.unknown = self._unknown.to_json() if len(self._unknown.columns()) else None

    def set_aside(self, corrupt: CorruptBatch) -> None:
        if self._dead is None:
            raise _Refused(f"{corrupt.topic}-{corrupt.partition} offset {corrupt.first}: {corrupt.reason}")
        self._dead.write(deadletters.of_corrupt(corrupt))
        self._report.dead += 1

    def _land(self, piece: pa.RecordBatch) -> None:
        origin = self._origin(piece)
        try:
            parsed = self._parser.parse(piece.column("value"))
            rows, failures = self._fitting.fit(parsed, origin)
        except (ArithmeticError, LookupError, TypeError, ValueError, pa.ArrowException) as defect:
            first, last = (piece.column("offset")[at].as_py() for at in (0, -1))
            raise _Refused(
                f"{self._report.partition} offsets {first} to {last}: a defect of Ottla: {type(defect).__name__}:"
                f" {defect}"
            ) from defect
        if failures:
            self._set_aside_failures(piece, origin, failures)
        if parsed.unknown is not None:
            self._unknown.merge(parsed.unknown)
            self._noted += parsed.noted
        self._files.write(rows)
        self._report.rows += len(rows)

    def _origin(self, piece: pa.RecordBatch) -> pa.Table:
        """The columns that say where rows come from."""
        columns = [
            pa.repeat(pa.scalar(self._report.partition.topic), len(piece)),
            pa.repeat(pa.scalar(self._report.partition.partition, pa.int32()), len(piece)),
            piece.column("offset"),
            piece.column("timestamp"),
        ]
        if self._task.names.key is not None:
            columns = [*columns, piece.column("key")]
        return pa.table(columns, names=[one.name for one in self._task.names.fields()])

    def _set_aside_failures(
        self, piece: pa.RecordBatch, origin: pa.Table, failures: Sequence[Failure]
    ) -> None:
        if self._dead is None:
            first = failures[0]
            topic, partition, offset = (origin.column(i)[first.row].as_py() for i in range(3))
            raise _Refused(
                f"{topic}-{partition} offset {offset}: {first.error}; say where dead letters go "
                "(topic:NAME or table:PATH), or fix the schema"
            )
        rows = pa.array([one.row for one in failures], pa.int64())
        errors = pa.array([one.error for one in failures], pa.string())
        self._dead.write(deadletters.rows(origin.take(rows), piece.take(rows), errors))
        self._report.dead += len(failures)


def fitting(task: TaskSettings, parsing: Parser) -> Fitting:
    """What makes the table's rows of what ``parsing`` returns."""
    return Fitting(task.table, unpacked(task.schema), task.layout, parsing.wanted, task.dates)


def _pieces(batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
    """The batch in pieces of at most some :data:`PIECE` bytes of values, at least a record each."""
    values = batch.column("value")
    if values.nbytes <= PIECE:
        yield batch
        return
    ends: Any = np.cumsum(pc.fill_null(pc.binary_length(values), 0).to_numpy())
    start = 0
    while start < len(batch):
        behind = int(ends[start - 1]) if start else 0
        end = max(start + 1, int(np.searchsorted(ends, behind + PIECE, side="right")))
        yield batch.slice(start, end - start)
        start = end


def _size(column: pa.Array) -> int:
    return int(pc.sum(pc.binary_length(column)).as_py() or 0)
