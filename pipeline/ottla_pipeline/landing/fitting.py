"""The last look at parsed records: what the table can't take becomes a dead letter, each with its reason."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ottla_pipeline.landing.constraints import Constraints
from ottla_pipeline.landing.files import with_columns
from ottla_pipeline.landing.parsing.base import Failure, Parsed
from ottla_pipeline.landing.parsing.malformed import short
from ottla_pipeline.landing.schema import nullable
from ottla_pipeline.landing.tables.layout import Layout
from ottla_pipeline.landing.tables.storage import NULL
from ottla_pipeline.landing.tables.transforms import transformed

_LONGEST: Final = 255
"""Most bytes of a folder's name."""
_DAYS: Final = (-719_162, 2_932_896)
"""The years 1 to 9999, in days since 1970: not all readers know others in a folder's name."""
_NAMED_BY_DATES: Final = frozenset({"identity", "day", "hour"})
"""The transforms of dates and times whose folders are named by a date."""


class Fitting:
    """Makes the table's rows of what was parsed. ``wanted`` are the parser's columns with NOT NULL as declared."""

    def __init__(
        self, table: str, schema: pa.Schema, layout: Layout, wanted: pa.Schema, dates: Mapping[str, str]
    ) -> None:
        self._schema = nullable(schema)
        self._layout = layout
        self._dates = dates
        self._declared = Constraints(table, wanted, (), who="the schema")
        self._of_table = Constraints(table, layout.schema, layout.checks)

    def fit(self, parsed: Parsed, origin: pa.Table) -> tuple[pa.Table, list[Failure]]:
        """Rows as the table has them, and all records that aren't among them: those that failed before, too.

        ``origin`` says of each of the records that were parsed where it comes from.
        """
        table = self._finished(parsed, origin)
        bad: dict[int, str] = {}
        if self._layout.partitions:
            bad |= _unplaceable(table, self._layout)
        if self._of_table and len(table):
            bad |= self._of_table.broken(table)
        if self._declared and len(table):
            bad |= self._declared.broken(parsed.columns)
        if not bad:
            return table, parsed.failures
        rows = sorted(bad)
        places = rows if parsed.rows is None else parsed.rows[rows].tolist()
        failures = [Failure(at, bad[row]) for at, row in zip(places, rows, strict=True)]
        keep = np.ones(len(table), np.bool_)
        keep[rows] = False
        return table.filter(pa.array(keep)), sorted([*parsed.failures, *failures], key=lambda one: one.row)

    def _finished(self, parsed: Parsed, origin: pa.Table) -> pa.Table:
        if parsed.rows is not None:
            origin = origin.take(pa.array(parsed.rows))
        table = parsed.columns
        for name, column in zip(origin.column_names, origin.columns, strict=True):
            table = table.append_column(name, column)
        for name, source in self._dates.items():
            table = table.append_column(name, _days(table.column(source)))
        return with_columns(table, self._schema)


def _days(column: pa.ChunkedArray) -> pa.ChunkedArray:
    """The day of each, in UTC."""
    if pa.types.is_date32(column.type):
        return column
    return pc.cast(column, pa.date32(), safe=False)


def _unplaceable(table: pa.Table, layout: Layout) -> dict[int, str]:
    """Rows with a value that no folder can be named by, and why."""
    found: dict[int, str] = {}
    for one in layout.partitions:
        source = table.column(one.source)
        column = transformed(one.transform, source)
        if pa.types.is_temporal(source.type) and one.transform in _NAMED_BY_DATES:
            days = _days(source).cast(pa.int32())
            beyond = pc.or_(pc.less(days, _DAYS[0]), pc.greater(days, _DAYS[1]))
            why = "not all readers know a partition of a date outside the years 1 to 9999"
            found |= dict.fromkeys(_rows(beyond), f"{one.source}: {why}")
        elif pa.types.is_string(column.type):
            for text in pc.unique(column).drop_null().to_pylist():
                if (reason := _no_folder(one.name, text, layout.keeps_partition_columns)) is not None:
                    found |= dict.fromkeys(_rows(pc.equal(column, text)), f"{one.source}: {reason}")
    return found


def _no_folder(name: str, text: str, in_files: bool) -> str | None:
    if not in_files and text == NULL:
        return f"readers take the partition {text!r} for null"
    if len(text) + len(name) < _LONGEST // 12 or len(quote(name)) + len(quote(text)) < _LONGEST:
        return None
    return f"{short(text)} is too long for a folder's name: partition by a column with shorter values"


def _rows(mask: Any) -> list[int]:
    found: list[int] = np.flatnonzero(pc.fill_null(mask, False).to_numpy(zero_copy_only=False)).tolist()
    return found
