"""The interface of parsers, and the ways from fast readers to the exact one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol, TypeVar

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.landing.parsing.shapes import Shape

_EXACTLY: Final = 64
"""Values that are read one by one, if they can't be read together."""

Places = NDArray[np.int64]
V = TypeVar("V")
R = TypeVar("R")


@dataclass(frozen=True)
class Failure:
    """A record that can't be parsed: its place among the values, and why."""

    row: int
    error: str


@dataclass(frozen=True)
class Parsed:
    columns: pa.Table
    """The records that could be parsed, in order."""
    rows: Places | None = None
    """Their places among the values; None if all values are rows."""
    failures: list[Failure] = field(default_factory=list)
    unknown: Shape | None = None
    """Fields that the records have and the schema lacks, if the parser looks for them."""
    noted: int = 0
    """Records with such fields."""


class Parser(Protocol):
    """Parses values of records to the columns of one schema."""

    @property
    def schema(self) -> pa.Schema:
        """The columns that :meth:`parse` returns, all nullable."""

    @property
    def wanted(self) -> pa.Schema:
        """The same with NOT NULL as declared, which the caller checks."""

    def parse(self, values: pa.Array) -> Parsed:
        """Parse ``values``, an array of binary. A null value is a row of nulls."""


Together = Callable[[pa.Array], pa.Table]
"""Parses all values by a fast reader, or raises :class:`Malformed`."""
Exactly = Callable[[Sequence[bytes], list[Failure]], tuple[pa.Table, list[int]]]
"""Parses values one by one: the rows, and their places; the others go to the failures."""
Suspects = Callable[[pa.Table, pa.Array], pa.Array | None]
"""The rows (a mask) that a fast reader may have read otherwise than the exact one; None if there are none."""


def one_by_one(
    values: Iterable[V], read: Callable[[V], R], failures: list[Failure]
) -> tuple[list[R], list[int]]:
    """What ``read`` makes of each value, and the places of these; the others go to ``failures``."""
    found: list[R] = []
    places: list[int] = []
    for at, value in enumerate(values):
        try:
            found.append(read(value))
        except Malformed as error:
            failures.append(Failure(at, str(error)))
        else:
            places.append(at)
    return found, places


class Pieces:
    """The outcome for some values, put together from pieces of them in any order."""

    def __init__(self, values: pa.Array, schema: pa.Schema, suspects: Suspects) -> None:
        self._values = values
        self._schema = schema
        self._suspects = suspects
        self._tables: list[pa.Table] = []
        self._places: list[Places] = []
        self._left: list[Places] = []

    def add(self, table: pa.Table, places: Places) -> None:
        """Rows by a fast reader; those that are suspect are left to the exact one."""
        values = self._values if len(places) == len(self._values) else self._values.take(pa.array(places))
        if (mask := self._suspects(table, values)) is not None:
            self._left.append(places[mask.to_numpy(zero_copy_only=False)])
            keep = pc.invert(mask)
            table, places = table.filter(keep), places[keep.to_numpy(zero_copy_only=False)]
        self._tables.append(table)
        self._places.append(places)

    def search(self, places: Places, attempt: Together) -> None:
        """Parse the values at these places together, or halves of them, and leave what can't be to the exact reader.

        An explicit stack avoids deep recursion.
        """
        values = self._values if len(places) == len(self._values) else self._values.take(pa.array(places))
        todo = [(0, len(values))]
        while todo:
            start, end = todo.pop()
            try:
                table = attempt(values.slice(start, end - start))
            except Malformed:
                if end - start <= _EXACTLY:
                    self._left.append(places[start:end])
                else:
                    middle = (start + end) // 2
                    todo += [(middle, end), (start, middle)]
            else:
                self.add(table, places[start:end])

    def parsed(self, exactly: Exactly) -> Parsed:
        """The outcome, with what is left read exactly."""
        failures: list[Failure] = []
        if self._left:
            left = np.sort(np.concatenate(self._left))
            table, good = exactly(self._values.take(pa.array(left)).to_pylist(), failures)
            failures = [Failure(int(left[one.row]), one.error) for one in failures]
            self._tables.append(table)
            self._places.append(left[good] if good else np.empty(0, np.int64))
        if len(self._tables) == 1 and not failures:
            return Parsed(self._tables[0])
        places = np.concatenate(self._places) if self._places else np.empty(0, np.int64)
        order = np.argsort(places, kind="stable")
        columns = pa.concat_tables(self._tables) if self._tables else self._schema.empty_table()
        if (order[1:] < order[:-1]).any():
            columns = columns.take(pa.array(order))
        return Parsed(columns, places[order] if failures else None, failures)


def check_text(values: pa.Array) -> None:
    """Raises Malformed if bytes are not UTF-8."""
    try:
        pc.cast(values, pa.string())
    except pa.ArrowInvalid as error:
        raise Malformed("the value is not UTF-8 text") from error


def has_line_ends(values: pa.Array) -> bool:
    """Whether any value contains a line feed or a carriage return."""
    return has_any(values, "\r\n")


def has_any(values: pa.Array, octets: str) -> bool:
    """Whether any value contains one of these ASCII characters."""
    offsets = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
    data = values.buffers()[2]
    if data is None or not len(offsets):
        return False
    found = np.frombuffer(data, np.uint8)[offsets[0] : offsets[-1]]
    return any(bool((found == ord(octet)).any()) for octet in octets)


def joined(values: pa.Array) -> pa.Buffer:
    """All values in one buffer, separated by line feeds."""
    return _data(pc.binary_join(_as_list(values), b"\n"))


def _as_list(values: pa.Array) -> pa.Array:
    return pa.ListArray.from_arrays(pa.array([0, len(values)], pa.int32()), values)


def _data(scalar: pa.Array) -> pa.Buffer:
    return scalar[0].as_buffer()


def first_line(error: Exception) -> str:
    """Arrow's error in one line."""
    return str(error).splitlines()[0]
