"""Parses JSON objects, one per record.

Values are joined by line feeds for Arrow's reader, with an explicit schema. The reader takes one object after the other
and ignores lines, so three things make sure that row n is record n: every value begins with ``{`` and ends with ``}``
(so no object continues in the next value), strings hold no raw control characters (the reader refuses them), and as
many rows come out as values went in (so no value has two objects).

A field without a column is left out, or reported (``grow``); a missing field is null. Numbers are not read from
strings, nor strings from numbers. Timestamps are ISO 8601 text, UTC without an offset; dates are ``YYYY-MM-DD``;
decimals are numbers or text.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json as pj

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.evolution import merged
from ottla_pipeline.landing.parsing.base import (
    Malformed,
    Parsed,
    check_depth,
    check_required,
    check_text,
    first_line,
    has_line_ends,
    joined,
    nullable,
    search,
    together,
)
from ottla_pipeline.landing.parsing.flat import FlatParser
from ottla_pipeline.landing.schema import TIMESTAMP, mapped, normalised, type_name

_BLOCK = 1 << 20
"""Bytes that Arrow parses at a time: a block that fits the processor's cache is parsed faster."""


class JsonParser:
    """Parses JSON objects into the columns of ``schema``; ``grow`` reports fields that it lacks."""

    def __init__(self, schema: pa.Schema, *, grow: bool = False) -> None:
        for one in schema:
            _refuse(one.name, one.type)
        self._wanted = schema
        self.schema = nullable(schema)
        self._grow = grow
        # Dates are read as text: Arrow's reader accepts only numbers for them.
        self._read_as = pa.schema([one.with_type(mapped(one.type, _as_text)) for one in self.schema])
        self._behaviour = "infer" if grow else "ignore"
        self._unknown: pa.Schema | None = None
        self._flat: FlatParser | None = None

    def parse(self, values: pa.Array) -> Parsed:
        """Parse objects; a null value is a row of nulls."""
        self._unknown = None
        if not len(values):
            return Parsed(self.schema.empty_table())
        if self._flat is None:
            self._flat = FlatParser.of(self.schema, self._wanted)
        parsed = self._search(values) if self._flat is None else self._by_loops(self._flat, values)
        return Parsed(parsed.columns, parsed.rows, parsed.failures, self._unknown)

    def _by_loops(self, flat: FlatParser, values: pa.Array) -> Parsed:
        """Parse usual objects by compiled loops, the rest by Arrow."""
        if values.null_count:
            values = pc.fill_null(values, b"{}")
        try:
            table, odd = flat.parse(values, known_alone=self._grow)
        except pa.ArrowInvalid:
            # Arrow has refused a number that was left to it.
            return self._search(values)
        if not len(odd):
            return Parsed(table)
        return together(len(values), table, odd, self._search(values.take(pa.array(odd))))

    def _search(self, values: pa.Array) -> Parsed:
        return search(values, self._attempt, self.schema.empty_table())

    def _attempt(self, values: pa.Array) -> pa.Table:
        if values.null_count:
            values = pc.fill_null(values, b"{}")
        check_text(values)
        if self._grow:
            check_depth(values)
        values = _objects(values)
        text = joined(values)
        table = read(text, _block(values, text), self._read_as, self._behaviour)
        if len(table) != len(values):
            raise Malformed("the value is not one JSON object")
        if self._grow:
            self._note(table.schema)
        try:
            table = table.select(self.schema.names).cast(self.schema)
        except pa.ArrowInvalid as error:
            raise Malformed(first_line(error)) from error
        check_required(table, self._wanted)
        return table

    def _note(self, schema: pa.Schema) -> None:
        known = set(self.schema.names)
        found = pa.schema([one for one in schema if one.name not in known])
        if len(found):
            self._unknown = found if self._unknown is None else merged(self._unknown, found)


def read(text: pa.Buffer, block: int, schema: pa.Schema | None, behaviour: str) -> pa.Table:
    """Parse consecutive objects by Arrow. Raises Malformed if they are no objects, or don't fit ``schema``."""
    try:
        return pj.read_json(
            pa.BufferReader(text),
            read_options=pj.ReadOptions(use_threads=False, block_size=block),
            parse_options=pj.ParseOptions(explicit_schema=schema, unexpected_field_behavior=behaviour),
        )
    except pa.ArrowInvalid as error:
        raise Malformed(first_line(error)) from error


def infer(values: pa.Array) -> pa.Schema:
    """The columns of a sample of objects, without those that are always null, whose type is unknown.

    Raises SchemaRefused if the sample has no objects with fields, or a field of two types.
    """
    values = values.drop_null()
    found = pa.schema([])
    for value in values:
        one = value.as_py()
        try:
            array = pa.array([one], pa.binary())
            check_depth(array)
            table = read(joined(_objects(array)), len(one) + 64, None, "infer")
        except Malformed:
            continue
        found = merged(found, _reading(table.schema))
    columns = [one.with_type(normalised(one.type)) for one in found if not _unclear(one.type)]
    if not columns:
        raise SchemaRefused(
            f"none of the {len(values)} records looked at is a JSON object with fields: give a schema"
        )
    return pa.schema(columns)


def _reading(schema: pa.Schema) -> pa.Schema:
    """Inferred columns with a table's types. Arrow reads ``"2013-01-01"`` and ``"2013-01-01T05:00:00Z"`` alike."""
    return pa.schema([one.with_type(mapped(one.type, _in_utc)) for one in schema])


def _in_utc(kind: pa.DataType) -> pa.DataType:
    return TIMESTAMP if pa.types.is_timestamp(kind) else kind


def known_columns(schema: pa.Schema) -> pa.Schema:
    """New columns with a table's types, without those whose type is still unknown."""
    known = [one for one in _reading(schema) if not _unclear(one.type)]
    return pa.schema([one.with_type(normalised(one.type)) for one in known])


def _unclear(kind: pa.DataType) -> bool:
    if pa.types.is_struct(kind):
        return kind.num_fields == 0 or any(_unclear(one.type) for one in kind)
    if pa.types.is_list(kind):
        return _unclear(kind.value_type)
    return bool(pa.types.is_null(kind))


def _objects(values: pa.Array) -> pa.Array:
    """The values without white space around them. Raises Malformed if one of them is no object."""
    if not _braced(values):
        values = pc.ascii_trim_whitespace(values.cast(pa.string())).cast(pa.binary())
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
    return pa.string() if pa.types.is_date(kind) else kind


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
