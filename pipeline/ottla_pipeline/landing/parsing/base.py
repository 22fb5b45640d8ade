"""The interface of parsers, and the search for failing records."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

DEEPEST: Final = 32
"""Levels of objects and arrays. Delta Lake takes some 40."""
_STRING: Final = re.compile(rb'"(?:[^"\\]|\\.)*"', re.DOTALL)


class Malformed(Exception):
    """Values can't be parsed together; for a single record, it is that record's error."""


@dataclass(frozen=True)
class Failure:
    """A record that can't be parsed: its place among the values, and why."""

    row: int
    error: str


@dataclass(frozen=True)
class Parsed:
    columns: pa.Table
    """The records that could be parsed, in order."""
    rows: np.ndarray[tuple[int], np.dtype[np.int64]] | None = None
    """Their places among the values; None if all values are rows."""
    failures: list[Failure] = field(default_factory=list)
    unknown: pa.Schema | None = None
    """Columns that the records have and the schema lacks, if the parser looks for them."""


class Parser(Protocol):
    """Parses values of records to the columns of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that :meth:`parse` returns, all nullable."""

    def parse(self, values: pa.Array) -> Parsed:
        """Parse ``values``, an array of binary. A null value is a row of nulls."""


Attempt = Callable[[pa.Array], pa.Table]
"""Parses all values, or raises :class:`Malformed`."""


def search(values: pa.Array, attempt: Attempt, empty: pa.Table) -> Parsed:
    """Parse values of which some may be malformed, halving what fails until single records are left.

    With k bad records in n, it takes about ``2 * k * log2(n/k)`` attempts. An explicit stack avoids deep recursion.
    """
    pieces: list[pa.Table] = []
    rows: list[np.ndarray[tuple[int], np.dtype[np.int64]]] = []
    failures: list[Failure] = []
    todo = [(0, len(values))]
    while todo:
        start, end = todo.pop()
        try:
            table = attempt(values.slice(start, end - start))
        except Malformed as error:
            if end - start == 1:
                failures.append(Failure(start, str(error)))
            else:
                middle = (start + end) // 2
                todo += [(middle, end), (start, middle)]
            continue
        if end - start == len(values):
            return Parsed(table)
        pieces.append(table)
        rows.append(np.arange(start, end, dtype=np.int64))
    if not failures:
        return Parsed(pa.concat_tables(pieces))
    if not pieces:
        return Parsed(empty, np.empty(0, dtype=np.int64), failures)
    return Parsed(pa.concat_tables(pieces), np.concatenate(rows), failures)


def together(
    count: int, table: pa.Table, odd: np.ndarray[tuple[int], np.dtype[np.int64]], others: Parsed
) -> Parsed:
    """Merge results for ``count`` values: ``table`` has the rows of all but those at the places ``odd``."""
    own = np.delete(np.arange(count, dtype=np.int64), odd)
    failures = [Failure(int(odd[one.row]), one.error) for one in others.failures]
    rows = np.concatenate([own, odd if others.rows is None else odd[others.rows]])
    order = np.argsort(rows, kind="stable")
    columns = pa.concat_tables([table, others.columns]).take(pa.array(order))
    return Parsed(columns, rows[order] if failures else None, failures)


def check_required(table: pa.Table, wanted: pa.Schema) -> None:
    """Raises Malformed if a column that is declared NOT NULL has a null."""
    for one in wanted:
        if not one.nullable and table.column(one.name).null_count:
            raise Malformed(f"{one.name} is missing or null, and the schema says NOT NULL")


def nullable(schema: pa.Schema) -> pa.Schema:
    """The schema with every column nullable, as in tables: parsing checks NOT NULL."""
    return pa.schema([one.with_nullable(True).with_type(_nullable(one.type)) for one in schema])


def _nullable(kind: pa.DataType) -> pa.DataType:
    if pa.types.is_struct(kind):
        return pa.struct([one.with_nullable(True).with_type(_nullable(one.type)) for one in kind])
    if pa.types.is_list(kind):
        return pa.list_(pa.field("element", _nullable(kind.value_type)))
    if pa.types.is_map(kind):
        return pa.map_(_nullable(kind.key_type), _nullable(kind.item_type))
    return kind


def check_text(values: pa.Array) -> None:
    """Raises Malformed if bytes are not UTF-8."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid as error:
        raise Malformed("the value is not UTF-8 text") from error


def check_depth(values: pa.Array) -> None:
    """Check values whose types Arrow will infer: it recurses, so deep nesting would overflow its stack.

    Raises Malformed if the JSON is nested deeper than a table's columns can be.
    """
    opened = pc.add(pc.count_substring(values, b"{"), pc.count_substring(values, b"["))
    for value in values.filter(pc.greater(opened, DEEPEST)):
        found = np.frombuffer(_STRING.sub(b"", value.as_py()), np.uint8)
        either = found | 32  # [ and ] become { and }
        steps = np.where(either == ord("{"), 1, np.where(either == ord("}"), -1, 0))
        if len(steps) and steps.cumsum().max() > DEEPEST:
            raise Malformed(
                f"the value is nested more than {DEEPEST} deep: give a schema that leaves that out"
            )


def has_line_ends(values: pa.Array) -> bool:
    """Whether any value contains a line feed or a carriage return."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    if data is None or not len(offsets):
        return False
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return bool((found == ord("\n")).any() or (found == ord("\r")).any())


def joined(values: pa.Array) -> pa.Buffer:
    """All values in one buffer, separated by line feeds."""
    return _data(pc.binary_join(_as_list(values), b"\n"))


def _as_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _data(scalar: pa.Array) -> pa.Buffer:
    return scalar[0].as_buffer()


def first_line(error: Exception) -> str:
    """Arrow's error in one line, without the row number, which counts within a piece."""
    return str(error).splitlines()[0].removesuffix(" in row 0")
