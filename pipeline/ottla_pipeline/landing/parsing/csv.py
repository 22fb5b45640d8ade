"""Parses comma-separated values, one row per record, without a header.

Fields may be quoted with ``"``; an empty field is null, ``""`` an empty text. Values are joined by line feeds for
Arrow's reader. Row n is record n because no joined value contains a line feed (so none makes two rows), and as many
rows come out as went in (so none continues in the next). Values with line feeds are read one by one.
"""

from __future__ import annotations

from codecs import BOM_UTF8

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.parsing.base import (
    Malformed,
    Parsed,
    check_required,
    check_text,
    first_line,
    has_line_ends,
    joined,
    nullable,
    search,
)
from ottla_pipeline.landing.schema import normalised, type_name

_BLOCK = 1 << 20


class CsvParser:
    """Parses rows into the columns of ``schema``, by their order."""

    def __init__(self, schema: pa.Schema, delimiter: str = ",") -> None:
        for one in schema:
            if pa.types.is_nested(one.type):
                raise SchemaRefused(f"the column {one.name}: {type_name(one.type)} is not read from CSV")
        self._wanted = schema
        self.schema = nullable(schema)
        self._delimiter = delimiter
        kinds = dict(zip(schema.names, self.schema.types, strict=True))
        self._convert = pcsv.ConvertOptions(
            column_types=kinds,
            null_values=[""],
            strings_can_be_null=True,
            quoted_strings_can_be_null=False,
            # All text was checked before.
            check_utf8=False,
        )

    def parse(self, values: pa.Array) -> Parsed:
        """Parse rows; a null value is a row of nulls."""
        if not len(values):
            return Parsed(self.schema.empty_table())
        return search(values, self._attempt, self.schema.empty_table())

    def _attempt(self, values: pa.Array) -> pa.Table:
        if values.null_count:
            values = pc.fill_null(values, self._delimiter.encode() * (len(self.schema) - 1))
        check_text(values)
        if has_line_ends(values):
            values = pc.ascii_rtrim(values.cast(pa.string()), "\r\n").cast(pa.binary())
        if not pc.all(pc.not_equal(pc.binary_length(values), 0)).as_py():
            raise Malformed("the value is empty")
        if len(values) > 1 and has_line_ends(values):
            raise Malformed("line feeds")
        table = self._read(values)
        if len(table) != len(values):
            raise Malformed(f"the value is {len(table)} rows of CSV, not one")
        check_required(table, self._wanted)
        return table

    def _read(self, values: pa.Array) -> pa.Table:
        longest = int(pc.max(pc.binary_length(values)).as_py())
        text = _lines(values)
        if text[: len(BOM_UTF8)] == BOM_UTF8:
            # Arrow would drop a byte order mark that belongs to the first value: put one before it.
            text = pa.py_buffer(BOM_UTF8 + text.to_pybytes())
        try:
            return pcsv.read_csv(
                pa.BufferReader(text),
                read_options=pcsv.ReadOptions(
                    use_threads=False,
                    block_size=max(_BLOCK, 2 * longest + 64),
                    column_names=self.schema.names,
                ),
                parse_options=pcsv.ParseOptions(
                    delimiter=self._delimiter, newlines_in_values=len(values) == 1, ignore_empty_lines=False
                ),
                convert_options=self._convert,
            )
        except pa.ArrowInvalid as error:
            line, of_arrow, _ = first_line(error).partition(". If these timestamps are in local time")
            hint = "; TIMESTAMP_NTZ takes times without one" if of_arrow else ""
            raise Malformed(line + hint) from error


def _lines(values: pa.Array) -> pa.Buffer:
    """Join the values, with a line feed at the end.

    Without it Arrow reads an empty last field after a quoted one as quoted, and infers no type from a single row.
    """
    return joined(pa.concat_arrays([values, pa.array([b""])]))


def infer(values: pa.Array, delimiter: str = ",") -> pa.Schema:
    """Columns f0, f1, … of a sample of rows. Raises SchemaRefused if the sample is no CSV."""
    values = values.drop_null()
    if not len(values) or has_line_ends(values):
        raise SchemaRefused("a schema can't be inferred from these CSV records: give one")
    try:
        table = pcsv.read_csv(
            pa.BufferReader(_lines(values)),
            read_options=pcsv.ReadOptions(use_threads=False, autogenerate_column_names=True),
            parse_options=pcsv.ParseOptions(delimiter=delimiter),
        )
    except pa.ArrowInvalid as error:
        raise SchemaRefused(
            f"a schema can't be inferred from these CSV records: {first_line(error)}"
        ) from error
    kinds = [pa.string() if pa.types.is_null(one) else normalised(one) for one in table.schema.types]
    # Tables have no columns for times of day and durations: keep them as text.
    kinds = [pa.string() if pa.types.is_time(one) or pa.types.is_duration(one) else one for one in kinds]
    return pa.schema(list(zip(table.schema.names, kinds, strict=True)))
