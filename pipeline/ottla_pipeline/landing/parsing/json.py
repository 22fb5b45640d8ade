"""Parses JSON objects, one per record.

``objects`` defines how they are read. Two faster readers do nearly all of the work, and leave to it what they refuse,
and what they may have read otherwise: compiled loops (``flat``), then Arrow. For Arrow, values are joined by line
feeds. It takes one object after the other and ignores lines, so three things make sure that row n is record n: every
value begins with ``{`` and ends with ``}`` (so no object continues in the next value), strings hold no raw control
characters (the reader refuses them), and as many rows come out as values went in (so no value has two objects).

A field without a column is left out, or noted (``grow``); a missing field is null. Numbers are not read from strings,
nor strings from numbers. Timestamps are ISO 8601 text, UTC without an offset; dates are ``YYYY-MM-DD``; decimals are
numbers or text.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.parsing.base import Parsed, Pieces, check_text, first_line, has_line_ends, joined
from ottla_pipeline.landing.parsing.flat import FlatParser
from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.landing.parsing.objects import ObjectReader, fields_of
from ottla_pipeline.landing.parsing.shapes import Shape
from ottla_pipeline.landing.schema import mapped, nullable, type_name

_BLOCK: Final = 1 << 20
"""Bytes that Arrow parses at a time: a block that fits the processor's cache is parsed faster."""
_ROUNDED: Final = {pa.float32(): 2.0**24, pa.float64(): 2.0**53}
"""From here on, floating point doesn't hold every whole number."""
_SPACE: Final = " \t\r\n"


class JsonParser:
    """Parses JSON objects into the columns of ``schema``; ``grow`` as for ObjectReader."""

    def __init__(self, schema: pa.Schema, *, grow: bool = False, reserved: Collection[str] = ()) -> None:
        for one in schema:
            _refuse(one.name, one.type)
        self.wanted = schema
        self.schema = nullable(schema)
        self._grow = grow
        self._reserved = reserved
        # Arrow reads only numbers as dates, and drops the offset of a time that must have none.
        self._read_as = pa.schema([one.with_type(mapped(one.type, _as_text)) for one in self.schema])
        self._flat: FlatParser | None = None

    def parse(self, values: pa.Array) -> Parsed:
        """Parse objects; a null value is a row of nulls."""
        if not len(values):
            return Parsed(self.schema.empty_table())
        if values.null_count:
            values = pc.fill_null(values, b"{}")
        if self._flat is None:
            self._flat = FlatParser.of(self.schema, len(values))
        pieces = Pieces(values, self.schema, self._suspects)
        places = np.arange(len(values), dtype=np.int64)
        if self._flat is not None:
            table, odd = self._flat.parse(values, known_alone=self._grow)
            pieces.add(table, np.delete(places, odd))
            places = places[odd]
        if len(places):
            pieces.search(places, self._attempt)
        exact = ObjectReader(self.schema, grow=self._grow, reserved=self._reserved)
        parsed = pieces.parsed(exact.rows)
        unknown = exact.unknown if exact.noted else None
        return Parsed(parsed.columns, parsed.rows, parsed.failures, unknown, exact.noted)

    def _attempt(self, values: pa.Array) -> pa.Table:
        check_text(values)
        values = _objects(values)
        text = joined(values)
        try:
            table = pj.read_json(
                pa.BufferReader(text),
                read_options=pj.ReadOptions(use_threads=False, block_size=_block(values, text)),
                parse_options=pj.ParseOptions(
                    explicit_schema=self._read_as,
                    unexpected_field_behavior="error" if self._grow else "ignore",
                ),
            )
            if len(table) != len(values):
                raise Malformed("the value is not one JSON object")
            return table.select(self.schema.names).cast(self.schema)
        except pa.ArrowInvalid as error:
            raise Malformed(first_line(error)) from error

    def _suspects(self, table: pa.Table, values: pa.Array) -> pa.Array | None:
        """Rows with an infinite number, which may have been a large one, or with one that may be rounded."""
        masks = []
        for column in table.columns:
            for leaf, parents in _floats(column.combine_chunks()):
                most = _ROUNDED[leaf.type] if self._grow else np.inf
                bounds = pc.min_max(leaf).as_py()
                if max(-(bounds["min"] or 0.0), bounds["max"] or 0.0) >= most:
                    mask = pc.fill_null(pc.greater_equal(pc.abs(leaf), most), False)
                    if parents is not None:
                        rows = np.zeros(len(table), bool)
                        rows[parents[mask.to_numpy(zero_copy_only=False)]] = True
                        mask = pa.array(rows)
                    masks.append(mask)
        return reduce(pc.or_, masks) if masks else None


def infer(values: pa.Array, reserved: Collection[str] = ()) -> pa.Schema:
    """The columns of a sample of objects, without those that are always null, whose type is unknown.

    None is named as one of ``reserved``.
    Raises SchemaRefused if the sample has no objects with fields.
    """
    found = Shape()
    values = values.drop_null()
    for value in values:
        one = Shape()
        try:
            one.add(fields_of(value.as_py()))
        except Malformed:
            continue
        found.merge(one)
    others = {name.lower() for name in reserved}
    columns = pa.schema([one for one in found.columns() if one.name.lower() not in others])
    if not len(columns):
        raise SchemaRefused(
            f"none of the {len(values)} records looked at is a JSON object with fields: give a schema"
        )
    return columns


def _floats(column: Any, parents: Any = None) -> list[tuple[Any, Any]]:
    """The floating point numbers in a column, and the rows that they are in; None if they are the rows."""
    kind = column.type
    if pa.types.is_floating(kind):
        return [(column, parents)]
    if pa.types.is_struct(kind):
        return [
            found
            for place in range(kind.num_fields)
            for found in _floats(pc.struct_field(column, place), parents)
        ]
    if pa.types.is_list(kind):
        above = pc.list_parent_indices(column).to_numpy()
        return _floats(pc.list_flatten(column), above if parents is None else parents[above])
    return []


def _objects(values: pa.Array) -> pa.Array:
    """The values without white space around them. Raises Malformed if one of them is no object."""
    if not _braced(values):
        values = pc.ascii_trim(values.cast(pa.string()), _SPACE).cast(pa.binary())
        if not _braced(values):
            raise Malformed("the value is not a JSON object")
    return values


def _braced(values: pa.Array) -> bool:
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    if data is None or bool((offsets[1:] == offsets[:-1]).any()):
        return False
    found: Any = np.frombuffer(data, np.uint8)
    return bool((found[offsets[:-1]] == ord("{")).all() and (found[offsets[1:] - 1] == ord("}")).all())


def _block(values: pa.Array, text: pa.Buffer) -> int:
    """Arrow's block size: it splits at line feeds, so if values contain any, it is all of the text."""
    if has_line_ends(values):
        return int(text.size) + 64
    return max(_BLOCK, 2 * int(pc.max(pc.binary_length(values)).as_py()) + 64)


def _as_text(kind: pa.DataType) -> pa.DataType:
    return pa.string() if pa.types.is_date(kind) or kind == pa.timestamp("us") else kind


def _refuse(name: str, kind: pa.DataType) -> None:
    """Raises SchemaRefused if a column of this type can't be read from JSON."""
    if pa.types.is_map(kind) or pa.types.is_binary(kind):
        instead = "a STRUCT with its fields" if pa.types.is_map(kind) else "STRING"
        raise SchemaRefused(
            f"the column {name}: {type_name(kind)} is not read from JSON; declare it as {instead}"
        )
    if pa.types.is_struct(kind):
        for one in kind:
            _refuse(f"{name}.{one.name}", one.type)
    elif pa.types.is_list(kind):
        _refuse(name, kind.value_type)
