"""How a table's files hold its columns: by field ids and physical names, whatever the columns are called now."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from ottla_pipeline.landing.constraints import Check

FIELD_ID = b"PARQUET:field_id"
"""The key under which Arrow's fields have the ids that Parquet files keep."""


@dataclass(frozen=True)
class PartitionField:
    """A column, or what is computed from it, by whose value rows get into files of their own."""

    name: str
    """The key of its value in :attr:`DataFile.partition`, and the name of its folders."""
    source: str
    """The column, as the table calls it."""
    transform: str = "identity"
    """One of Iceberg's: see :mod:`ottla_pipeline.landing.tables.transforms`."""


@dataclass(frozen=True)
class Layout:
    """Columns as users see them, and as files hold them. Picklable: it travels to every task."""

    schema: pa.Schema
    """The table's columns: names as users see them, exact types."""
    stored: pa.Schema
    """The same columns at the same positions, as files have them: physical names, and field ids (:data:`FIELD_ID`)
    where the table has ids; of nested fields, too."""
    partitions: tuple[PartitionField, ...] = ()
    keeps_partition_columns: bool = False
    """Whether files hold the columns that the table is partitioned by."""
    version: str = ""
    """Differs once another program has changed the columns or the partitioning."""
    checks: tuple[Check, ...] = ()
    """Conditions that every row has to meet."""

    @classmethod
    def plain(
        cls, schema: pa.Schema, partition_by: Sequence[str] = (), *, keeps_partition_columns: bool = False
    ) -> Layout:
        """Of a table whose files have the columns by their names."""
        return cls(
            schema,
            schema.remove_metadata(),
            tuple(PartitionField(name, name) for name in partition_by),
            keeps_partition_columns,
            f"{schema}|{','.join(partition_by)}",
        )

    @property
    def in_files(self) -> list[int]:
        """Positions of the columns that files hold."""
        apart = set() if self.keeps_partition_columns else {one.source for one in self.partitions}
        return [at for at, one in enumerate(self.schema) if one.name not in apart]


def stored_as(column: pa.ChunkedArray, kind: pa.DataType) -> pa.ChunkedArray:
    """The column as the type that files have: nested fields keep their positions, and get other names and ids."""
    return pa.chunked_array([_stored(chunk, kind) for chunk in column.chunks], kind)


def _stored(array: pa.Array, kind: pa.DataType) -> pa.Array:
    if pa.types.is_nested(kind):
        # Types that differ in names alone have the same buffers.
        return array if array.type.equals(kind, check_metadata=True) else array.view(kind)
    return array if array.type == kind else pc.cast(array, kind)


def leaves(schema: pa.Schema) -> Iterator[tuple[pa.Field, ...]]:
    """The path of fields to each leaf, in the order of a Parquet file's columns."""
    for one in schema:
        yield from _leaves(one)


def field_ids(schema: pa.Schema) -> list[int]:
    """The id of each leaf."""
    return [int(path[-1].metadata[FIELD_ID]) for path in leaves(schema)]


def _leaves(field: pa.Field) -> Iterator[tuple[pa.Field, ...]]:
    kind = field.type
    if pa.types.is_struct(kind):
        inner = list(kind)
    elif pa.types.is_map(kind):
        inner = [kind.key_field, kind.item_field]
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind):
        inner = [kind.value_field]
    else:
        yield (field,)
        return
    for each in inner:
        for path in _leaves(each):
            yield (field, *path)
