"""Writes a batch's rows to Parquet files of about the wanted size, separately for each partition of the table.

Memory is bounded: rows wait in pieces of :data:`ROW_GROUP` bytes per partition, :data:`WAITING` bytes in all, and at
most :data:`OPEN` files are open.
"""

from __future__ import annotations

import posixpath
import uuid
from collections.abc import Sequence
from dataclasses import dataclass
from errno import ENAMETOOLONG
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyarrow import fs as pafs

from ottla_pipeline.landing.errors import LandingError
from ottla_pipeline.landing.statistics import statistics
from ottla_pipeline.landing.tables.base import DataFile, Names, Table
from ottla_pipeline.landing.tables.layout import Layout, PartitionField, stored_as
from ottla_pipeline.landing.tables.storage import folder_of
from ottla_pipeline.landing.tables.transforms import texts, transformed

ROW_GROUP = 16 << 20
"""Bytes of a row group, about, before compression."""
WAITING = 64 << 20
"""Most bytes of rows that wait to become row groups, in all partitions."""
OPEN = 48
"""Most open files: a table partitioned by many values gets more and smaller files instead of using more memory."""

COMPRESSIONS = ("none", "snappy", "gzip", "lz4", "zstd")

Values = tuple[str | None, ...]


@dataclass(frozen=True)
class FileSettings:
    """The settings for writing files. Picklable: they travel to every task."""

    compression: str = "zstd"
    target_size: int = 128 << 20
    dictionaries: tuple[str, ...] = ()
    """Columns whose values repeat."""
    rising: tuple[str, ...] = ()
    """Columns of integers that increase from row to row: stored as differences."""

    @classmethod
    def of(cls, table: Table, names: Names, compression: str, target_size: int) -> FileSettings:
        """For the files of a table; all columns but binary, nested and rising ones are expected to repeat."""
        schema = table.schema()
        names = names.of_table(table)
        rising = tuple(name for name in (names.offset, names.timestamp) if name in schema.names)
        repeating = tuple(
            one.name
            for one in schema
            if one.name not in rising
            and not pa.types.is_binary(one.type)
            and not pa.types.is_nested(one.type)
        )
        return cls(compression, target_size, repeating, rising)


class _Open:
    """An open file, and the rows that wait for it."""

    def __init__(self, values: Values) -> None:
        self.values = values
        self.waiting: list[pa.Table] = []
        self.bytes = 0
        self.path = ""
        self.sink: Any = None
        self.writer: pq.ParquetWriter | None = None
        self.rows = 0
        self.used = 0
        self.nan: set[str] = set()


class FileWriter:
    """Writes one task's rows to new files below ``root``, which are in no table before their commit."""

    def __init__(
        self, filesystem: pafs.FileSystem, root: str, layout: Layout, settings: FileSettings, prefix: str
    ) -> None:
        self._fs = filesystem
        self._root = root
        self._partitions = layout.partitions
        self._hive = not layout.keeps_partition_columns
        self._settings = settings
        self._prefix = prefix
        self._kept = layout.in_files
        self._stored = pa.schema([layout.stored.field(at) for at in self._kept])
        self._as_stored = {layout.schema.field(at).name: layout.stored.field(at).name for at in self._kept}
        self._open: dict[Values, _Open] = {}
        self._waiting = 0
        self._clock = 0
        self._done: list[DataFile] = []
        self._made: list[str] = []

    def write(self, table: pa.Table) -> None:
        """Add rows that have exactly the layout's columns, in order."""
        if not len(table):
            return
        # Where a partition's value is in the folder's name alone, an empty text is null, as in Hive and Spark.
        pieces = _split(table, self._partitions, self._hive) if self._partitions else [((), table)]
        for values, rows in pieces:
            self._add(values, self._as_in_files(rows))

    def close(self) -> list[DataFile]:
        for one in list(self._open.values()):
            self._finish(one)
        return self._done

    def abort(self) -> None:
        """Close and delete all files: the task has failed, or another one has done its work."""
        for one in self._open.values():
            if one.sink is not None:
                one.sink.close()
        self._open.clear()
        for path in self._made:
            try:
                self._fs.delete_file(posixpath.join(self._root, path))
            except FileNotFoundError:
                continue

    def _as_in_files(self, table: pa.Table) -> pa.Table:
        columns = [
            stored_as(table.column(at), one.type) for at, one in zip(self._kept, self._stored, strict=True)
        ]
        return pa.Table.from_arrays(columns, schema=self._stored)

    def _add(self, values: Values, table: pa.Table) -> None:
        one = self._open.get(values)
        if one is None:
            one = self._open[values] = _Open(values)
        self._clock += 1
        one.used = self._clock
        size = table.nbytes
        one.waiting.append(table)
        one.bytes += size
        self._waiting += size
        if one.bytes >= ROW_GROUP:
            self._flush(one)
        while self._waiting > WAITING:
            self._flush(max(self._open.values(), key=lambda each: each.bytes))

    def _flush(self, one: _Open) -> None:
        if not one.waiting:
            return
        table = one.waiting[0] if len(one.waiting) == 1 else pa.concat_tables(one.waiting)
        self._waiting -= one.bytes
        one.waiting, one.bytes = [], 0
        if one.writer is None:
            self._begin(one)
        assert one.writer is not None
        one.nan.update(_with_nan(table) - one.nan)
        one.writer.write_table(table, row_group_size=len(table))
        one.rows += len(table)
        if one.sink.tell() >= self._settings.target_size:
            self._finish(one)

    def _begin(self, one: _Open) -> None:
        opened = [each for each in self._open.values() if each.writer is not None]
        if len(opened) >= OPEN:
            self._finish(min(opened, key=lambda each: each.used))
        folder = folder_of(zip((each.name for each in self._partitions), one.values, strict=True))
        one.path = posixpath.join(folder, f"{self._prefix}-{uuid.uuid4().hex}.parquet")
        where = posixpath.join(self._root, one.path)
        try:
            self._fs.create_dir(posixpath.dirname(where), recursive=True)
        except OSError as error:
            if error.errno != ENAMETOOLONG:
                raise
            raise LandingError(
                f"{folder[:80]}… is too long for a folder's name: partition by a column with shorter values"
            ) from error
        self._made.append(one.path)
        one.sink = self._fs.open_output_stream(where)
        as_stored = self._as_stored
        one.writer = pq.ParquetWriter(
            one.sink,
            self._stored,
            compression=self._settings.compression,
            use_dictionary=[as_stored[name] for name in self._settings.dictionaries if name in as_stored],
            column_encoding=dict.fromkeys(
                (as_stored[name] for name in self._settings.rising if name in as_stored),
                "DELTA_BINARY_PACKED",
            ),
            # Bounds of long bytes help no reader, and cost time.
            write_statistics=[one.name for one in self._stored if not pa.types.is_binary(one.type)],
            # Other readers don't know Arrow's own types.
            store_schema=False,
        )

    def _finish(self, one: _Open) -> None:
        self._open.pop(one.values, None)
        if one.waiting:
            self._open[one.values] = one
            self._flush(one)
            self._open.pop(one.values, None)
        writer, one.writer = one.writer, None
        if writer is None:
            return
        writer.close()
        size = one.sink.tell()
        one.sink.close()
        metadata = writer.writer.metadata
        partition = dict(zip((each.name for each in self._partitions), one.values, strict=True))
        self._done.append(
            DataFile(one.path, size, one.rows, partition, statistics(metadata, self._stored, one.nan))
        )


def _split(
    table: pa.Table, partitions: Sequence[PartitionField], empty_is_null: bool
) -> list[tuple[Values, pa.Table]]:
    """The rows of each combination of values, in order."""
    codes: Any = np.zeros(len(table), dtype=np.int64)
    values: list[list[Any]] = []
    for one in partitions:
        column = transformed(one.transform, table.column(one.source))
        encoded = column.dictionary_encode(null_encoding="encode")
        named = texts(encoded.dictionary)
        values.append([text or None for text in named] if empty_is_null else named)
        codes = codes * len(encoded.dictionary) + encoded.indices.to_numpy(zero_copy_only=False)
    found = np.unique(codes)
    if len(found) > 1:
        order = np.argsort(codes, kind="stable")
        table = table.take(pa.array(order))
        codes = codes[order]
    starts = np.searchsorted(codes, found, side="left") if len(found) > 1 else np.array([0])
    ends = [*starts[1:].tolist(), len(table)]
    pieces = []
    for code, start, end in zip(found.tolist(), starts.tolist(), ends, strict=True):
        combination: list[str | None] = []
        for column in reversed(values):
            code, at = divmod(code, len(column))
            combination.append(column[at])
        pieces.append((tuple(reversed(combination)), table.slice(start, end - start)))
    return pieces


def _with_nan(table: pa.Table) -> set[str]:
    floating = (one.name for one in table.schema if pa.types.is_floating(one.type))
    return {name for name in floating if pc.any(pc.is_nan(table.column(name))).as_py()}


def with_columns(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """The table with exactly the columns of ``schema``: missing ones are null, narrower types are cast."""
    found = []
    for one in schema:
        if one.name in table.column_names:
            column = table.column(one.name)
            found.append(column if column.type == one.type else pc.cast(column, one.type))
        else:
            found.append(pa.chunked_array([pa.nulls(len(table), one.type)]))
    return pa.Table.from_arrays(found, schema=schema)
