"""Rows of a Parquet file as the table has them: columns found by field id or physical name, at every depth."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from ottla_pipeline.landing.tables.layout import FIELD_ID, Layout
from ottla_pipeline.landing.tables.transforms import from_text

ROWS = 1 << 17
"""Most rows of a batch."""


def batches_of(
    source: Any, layout: Layout, columns: Sequence[str], partition: Mapping[str, str | None]
) -> Iterator[pa.RecordBatch]:
    """All rows of a file, in order. Columns that it lacks are null, or have the value of its partition."""
    # Spark writes timestamps of Delta tables as INT96, which Arrow reads as nanoseconds otherwise.
    file = pq.ParquetFile(source, pre_buffer=True, coerce_int96_timestamp_unit="us")
    has = file.schema_arrow
    given = {one.source: partition.get(one.name) for one in layout.partitions}
    wanted = [layout.schema.get_field_index(name) for name in columns]
    found = {at: _found(has, layout.stored.field(at)) for at in wanted}
    read = [has.field(at).name for at in found.values() if at is not None]
    for batch in file.iter_batches(ROWS, columns=read):
        arrays = []
        for at in wanted:
            logical, place = layout.schema.field(at), found[at]
            if place is not None:
                stored = batch.column(batch.schema.get_field_index(has.field(place).name))
                arrays.append(_as(stored, layout.stored.field(at).type, logical.type))
            elif given.get(logical.name) is not None:
                arrays.append(pa.repeat(_value(given[logical.name], logical.type), len(batch)))
            else:
                arrays.append(pa.nulls(len(batch), logical.type))
        yield pa.RecordBatch.from_arrays(arrays, schema=pa.schema([layout.schema.field(at) for at in wanted]))


def _value(text: str | None, kind: pa.DataType) -> pa.Scalar:
    """A partition's value; times of all years, with and without a zone."""
    if pa.types.is_timestamp(kind):
        return pa.scalar(from_text(text, kind), pa.int64()).cast(kind)
    return pa.scalar(text).cast(kind)


def _found(fields: Any, wanted: pa.Field) -> int | None:
    """The position of a field among a schema's or a struct's: by id if both have ids, otherwise by name."""
    field_id = (wanted.metadata or {}).get(FIELD_ID)
    by_id, by_name = None, None
    for at, one in enumerate(fields):
        known = (one.metadata or {}).get(FIELD_ID)
        if known is not None and field_id is not None:
            by_id = at if known == field_id else by_id
        elif one.name == wanted.name:
            by_name = at
    return by_id if by_id is not None else by_name


def _as(array: pa.Array, stored: pa.DataType, logical: pa.DataType) -> pa.Array:
    """The array as the logical type; fields of structs are found as columns are."""
    if pa.types.is_struct(stored):
        parts = []
        for at, one in enumerate(stored):
            place = _found(list(array.type), one)
            parts.append(
                pa.nulls(len(array), logical.field(at).type)
                if place is None
                else _as(array.field(place), one.type, logical.field(at).type)
            )
        return pa.StructArray.from_arrays(parts, fields=list(logical), mask=array.is_null())
    if pa.types.is_list(stored):
        array = _at_zero(array)
        values = _as(array.values, stored.value_type, logical.value_type)
        return pa.ListArray.from_arrays(array.offsets, values, type=logical, mask=array.is_null())
    if pa.types.is_map(stored):
        array = _at_zero(array)
        keys = _as(array.keys, stored.key_type, logical.key_type)
        items = _as(array.items, stored.item_type, logical.item_type)
        return pa.MapArray.from_arrays(array.offsets, keys, items, type=logical, mask=array.is_null())
    return array if array.type == logical else pc.cast(array, logical)


def _at_zero(array: pa.Array) -> pa.Array:
    """A list or map that begins its buffers, as an array with a mask has to."""
    return array if array.offset == 0 else array.take(pa.array(np.arange(len(array))))
