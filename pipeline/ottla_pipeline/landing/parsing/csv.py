"""Parses comma-separated values, one row per record, without a header.

Fields may be quoted with ``"`` (RFC 4180); an empty field is null, ``""`` an empty text. ``_Rows`` defines how they are
read. Arrow does nearly all of the work, and leaves to it what it refuses, and what it may have read otherwise: values
are joined by line feeds for Arrow, and row n is record n because no joined value contains a line feed (so none makes
two rows), and as many rows come out as went in (so none continues in the next).
"""

from __future__ import annotations

import re
from codecs import BOM_UTF8
from collections import Counter
from collections.abc import Sequence
from functools import reduce
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv as pcsv

from ottla_pipeline.landing.errors import SchemaRefused
from ottla_pipeline.landing.parsing import texts
from ottla_pipeline.landing.parsing.base import (
    Failure,
    Parsed,
    Pieces,
    check_text,
    first_line,
    has_any,
    has_line_ends,
    joined,
    one_by_one,
)
from ottla_pipeline.landing.parsing.malformed import Malformed, short
from ottla_pipeline.landing.schema import TIMESTAMP, nullable, type_name

_BLOCK: Final = 1 << 20
_FLAGS: Final = {
    **dict.fromkeys(("1", "true", "True", "TRUE"), True),
    **dict.fromkeys(("0", "false", "False", "FALSE"), False),
}
_HEXADECIMAL: Final = (b"0x", b"0X")
"""Arrow takes 0x10 for 16."""
_END: Final = r"(\r\n|\n|\r)\z"
"""Of the line that a value is, if it says so."""
_SPACE: Final = " \t"
_CLOCK: Final = r"[0-9]{4}-[0-9]{2}-[0-9]{2}[ T][0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,6})?"
_PLAIN: Final = [
    (pa.bool_(), re.compile("true|false|True|False|TRUE|FALSE")),
    (pa.int64(), re.compile("0|-?[1-9][0-9]{0,18}")),
    (pa.decimal128(20, 0), re.compile("0|-?[1-9][0-9]{0,19}")),
    (
        pa.float64(),
        re.compile(r"(?=-?[0-9.]{1,16}(?![0-9.]))-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]{1,2})?"),
    ),
    (pa.date32(), re.compile("[0-9-]{10}")),
    (TIMESTAMP, re.compile(_CLOCK + "(Z|[+-][0-9]{2}:?[0-9]{2})")),
    (pa.timestamp("us"), re.compile(_CLOCK)),
]
"""Types that a sample's texts have if they all look like this."""


class CsvParser:
    """Parses rows into the columns of ``schema``, by their order."""

    def __init__(self, schema: pa.Schema, delimiter: str = ",") -> None:
        for one in schema:
            if pa.types.is_nested(one.type):
                raise SchemaRefused(f"the column {one.name}: {type_name(one.type)} is not read from CSV")
        self.wanted = schema
        self.schema = nullable(schema)
        self._delimiter = delimiter
        self._exact = _Rows(self.schema, delimiter)
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
        if values.null_count:
            values = pc.fill_null(values, self._delimiter.encode() * (len(self.schema) - 1) or b"\n")
        pieces = Pieces(values, self.schema, self._suspects)
        pieces.search(np.arange(len(values), dtype=np.int64), self._attempt)
        return pieces.parsed(self._exact.rows)

    def _attempt(self, values: pa.Array) -> pa.Table:
        check_text(values)
        if has_line_ends(values):
            values = pc.replace_substring_regex(values.cast(pa.string()), _END, "").cast(pa.binary())
        if has_line_ends(values) or not pc.all(pc.not_equal(pc.binary_length(values), 0)).as_py():
            raise Malformed("line feeds, or an empty value")
        if has_any(values, '"'):
            quoted = values.filter(pc.match_substring(values, b'"'))
            if not pc.all(pc.match_substring_regex(quoted, self._exact.pattern)).as_py():
                raise Malformed("a quote is not closed, or something follows one")
        table = self._read(values)
        if len(table) != len(values):
            raise Malformed("not one row each")
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
                parse_options=pcsv.ParseOptions(delimiter=self._delimiter, ignore_empty_lines=False),
                convert_options=self._convert,
            )
        except pa.ArrowInvalid as error:
            raise Malformed(first_line(error)) from error

    def _suspects(self, table: pa.Table, values: pa.Array) -> pa.Array | None:
        """Rows with an infinite number, which may have been a large one, or with what may be a hexadecimal one."""
        masks = [
            pc.fill_null(pc.is_inf(column.combine_chunks()), False)
            for column in table.columns
            if pa.types.is_floating(column.type)
        ]
        if any(map(pa.types.is_integer, self.schema.types)) and has_any(values, "xX"):
            masks += [pc.match_substring(values, prefix) for prefix in _HEXADECIMAL]
        found = reduce(pc.or_, masks) if masks else None
        return found if found is not None and pc.any(found).as_py() else None


class _Rows:
    """Reads rows one by one, exactly."""

    def __init__(self, schema: pa.Schema, delimiter: str) -> None:
        self._schema = schema
        apart = re.escape(delimiter)
        field = rf'(?:"(?:[^"]|"")*"|(?:[^"{apart}\r\n][^{apart}\r\n]*)?)'
        self.pattern = rf"\A{field}(?:{apart}{field})*\z"
        # Possessive, because what could be tried again would take a hundred bytes for each of a long text.
        self._next = re.compile(rf'(?:"((?:[^"]++|"")*+)"|([^"{apart}\r\n][^{apart}\r\n]*+)?)({apart}|\Z)')

    def rows(self, values: Sequence[bytes], failures: list[Failure]) -> tuple[pa.Table, list[int]]:
        """The rows that fit, and their places; the others go to ``failures``."""
        rows, places = one_by_one(values, self._row, failures)
        columns = list(zip(*rows, strict=True)) or [()] * len(self._schema)
        arrays = [pa.array(column, kind) for column, kind in zip(columns, self._schema.types, strict=True)]
        return pa.Table.from_arrays(arrays, schema=self._schema), places

    def _row(self, value: bytes) -> list[Any]:
        fields = self.fields(value)
        if len(fields) != len(self._schema):
            raise Malformed(
                f"the value has {len(fields):,} fields, and there are {len(self._schema):,} columns"
            )
        row = []
        for (text, quoted), one in zip(fields, self._schema, strict=True):
            try:
                row.append(None if not text and not quoted else _value(text, one.type))
            except Malformed as error:
                raise Malformed(f"{one.name}: {error}") from None
        return row

    def fields(self, value: bytes) -> list[tuple[str, bool]]:
        """The texts of the fields, and whether they were quoted."""
        try:
            text = value.decode()
        except UnicodeDecodeError:
            raise Malformed("the value is not UTF-8 text") from None
        for end in ("\r\n", "\n", "\r"):
            if text.endswith(end):
                text = text.removesuffix(end)
                break
        else:
            if not text:
                raise Malformed("the value is empty")
        found: list[tuple[str, bool]] = []
        at, more = 0, True
        while more:
            field = self._next.match(text, at)
            if field is None:
                raise Malformed(
                    f"the value is not one row of CSV: a quote is not closed, or something follows one, or a line, at"
                    f" {short(text[at : at + 40])}"
                )
            quoted, plain, behind = field.groups()
            found.append((plain or "", False) if quoted is None else (quoted.replace('""', '"'), True))
            at, more = field.end(), bool(behind)
        return found


def _value(text: str, kind: pa.DataType) -> Any:
    if pa.types.is_string(kind):
        return text
    if pa.types.is_binary(kind):
        return text.encode()
    text = text.strip(_SPACE)
    if pa.types.is_integer(kind):
        return texts.whole(text, kind)
    if pa.types.is_floating(kind):
        return texts.real(text, kind)
    if pa.types.is_decimal(kind):
        return texts.number(text, kind)
    if pa.types.is_date(kind):
        return texts.day(text)
    if pa.types.is_timestamp(kind):
        return texts.instant(text, kind, offset=kind.tz is not None)
    if text not in _FLAGS:
        raise Malformed(f"{short(text)} is no {type_name(kind)}")
    return _FLAGS[text]


def _lines(values: pa.Array) -> pa.Buffer:
    """Join the values, with a line feed at the end.

    Without it Arrow reads an empty last field after a quoted one as quoted, and infers no type from a single row.
    """
    return joined(pa.concat_arrays([values, pa.array([b""])]))


def infer(values: pa.Array, delimiter: str = ",") -> pa.Schema:
    """Columns f0, f1, … of a sample of rows, of which most have so many fields.

    A column is text unless every value in the sample is of one other type, and written as that type writes it: what
    looks like a number, but begins with zeros or has more digits than a DOUBLE, is none. Raises SchemaRefused if the
    sample has no row.
    """
    reader = _Rows(pa.schema([]), delimiter)
    rows: list[list[tuple[str, bool]]] = []
    for value in values.drop_null().to_pylist():
        try:
            rows.append(reader.fields(value))
        except Malformed:
            continue
    if not rows:
        raise SchemaRefused("a schema can't be inferred from these CSV records: give one")
    (size, _), *_ = Counter(map(len, rows)).most_common(1)
    columns = zip(*(row for row in rows if len(row) == size), strict=True)
    return pa.schema([(f"f{place}", _type(column)) for place, column in enumerate(columns)])


def _type(column: Sequence[tuple[str, bool]]) -> pa.DataType:
    if any(quoted and not text for text, quoted in column):
        return pa.string()
    found = {text for text, _ in column if text}
    kinds = (kind for kind, pattern in _PLAIN if found and all(map(pattern.fullmatch, found)))
    for kind in kinds:
        try:
            for text in found:
                _value(text, kind)
        except Malformed:
            continue
        return kind
    return pa.string()
