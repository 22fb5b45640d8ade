"""Parses JSON objects of plain values by compiled loops, straight into columns.

It is several times as fast as Arrow's reader, to which it leaves unusual records. It is used once a process has parsed
enough objects to make up for loading numba (see docs/decisions/0008).
"""

from __future__ import annotations

import logging
import sys
from collections.abc import Sequence
from functools import cache
from types import ModuleType
from typing import Any, Final, Self

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ottla_pipeline.landing.parsing.base import check_text
from ottla_pipeline.landing.parsing.malformed import Malformed
from ottla_pipeline.reading.columns import array

log = logging.getLogger("ottla_pipeline")

_CELLS: Final = 1 << 20
"""Values that are parsed at a time: 9 MB."""
WORTH_LOADING: Final = 100_000
"""With fewer objects, loading the loops (0.4 s per process) takes longer than Arrow does."""
_MOST: Final = 300
"""Most columns: a field that isn't where it is expected is searched among all of them."""


class FlatParser:
    """Parses objects; made by :meth:`of`."""

    def __init__(self, kernels: ModuleType, schema: pa.Schema, kinds: list[int]) -> None:
        self._kernels: Any = kernels
        self._schema = schema
        self._kinds = np.array(kinds, np.int64)
        names = [one.name.encode() for one in schema]
        self._names = np.frombuffer(b"".join(names), np.uint8)
        self._name_edges = np.cumsum([0, *map(len, names)], dtype=np.int32)
        self._patterns = _patterns([name + b'":' for name in names])
        bits = [one.type.bit_width if pa.types.is_integer(one.type) else 64 for one in schema]
        self._least = np.array([-(2 ** (size - 1)) for size in bits], np.int64)
        self._greatest = np.array([2 ** (size - 1) - 1 for size in bits], np.int64)
        # At first, fields are expected in the order of the columns.
        self._follow = np.array([*range(1, len(names)), 0, 0], np.int64)
        self._seen = np.empty(len(names), np.int64)
        self._rows = max(1, _CELLS // len(names))
        self._cells = np.empty((len(names), 0), np.int64)

    @classmethod
    def of(cls, schema: pa.Schema, objects: int) -> Self | None:
        """The parser for ``schema``, for so many objects at first; None if the loops don't fit or aren't worth it."""
        kernels = _kernels() if _worth(objects) else None
        if kernels is None:
            return None
        kinds = [_kind(kernels, one.type) for one in schema]
        if not 0 < len(kinds) <= _MOST or any(_escaped(name) for name in schema.names):
            return None
        known = [kind for kind in kinds if kind is not None]
        return cls(kernels, schema, known) if len(known) == len(kinds) else None

    def parse(self, values: pa.Array, *, known_alone: bool) -> tuple[pa.Table, NDArray[np.int64]]:
        """Rows of all objects but the odd ones, in order, and the places of the odd ones. No value is null.

        ``known_alone``: objects with fields that are no columns are odd.
        """
        forbidden = 0
        try:
            check_text(values)
        except Malformed:
            forbidden = 128
        edges = np.frombuffer(values.buffers()[1], np.int32)[values.offset : values.offset + len(values) + 1]
        data = np.frombuffer(values.buffers()[2] or b"", np.uint8)
        odd = np.zeros(len(values), np.uint8)
        batches = [
            self._take_apart(
                data, edges[at : at + self._rows + 1], odd[at : at + self._rows], forbidden, known_alone
            )
            for at in range(0, len(values), self._rows)
        ]
        return pa.Table.from_batches(batches, self._schema), np.flatnonzero(odd)

    def _take_apart(
        self,
        data: NDArray[np.uint8],
        edges: NDArray[np.int32],
        odd: NDArray[np.uint8],
        forbidden: int,
        known_alone: bool,
    ) -> pa.RecordBatch:
        records = len(odd)
        if self._cells.shape[1] < records:
            self._cells = np.empty((len(self._kinds), records), np.int64)
        cells = self._cells
        marks = np.zeros((len(self._kinds), records), np.uint8)
        self._seen.fill(-1)
        rows = self._kernels.take_apart(
            *(data, edges, self._names, self._name_edges, *self._patterns),
            *(self._kinds, self._least, self._greatest),
            *(forbidden, known_alone),
            *(self._follow, self._seen, cells, cells.view(np.float64), marks, odd),
        )
        columns = [
            self._column(one.type, kind, data, cells[at, :rows], marks[at, :rows])
            for at, (one, kind) in enumerate(zip(self._schema, self._kinds.tolist(), strict=True))
        ]
        return pa.RecordBatch.from_arrays(columns, schema=self._schema)

    def _column(
        self,
        type_: pa.DataType,
        kind: int,
        data: NDArray[np.uint8],
        cells: NDArray[np.int64],
        marks: NDArray[np.uint8],
    ) -> pa.Array:
        """A column from cells; a cell without a value is undefined."""
        kernels = self._kernels
        rows = len(cells)
        nulls = rows - int(np.count_nonzero(marks))
        bits = np.packbits(marks, bitorder="little") if nulls else None
        if kind == kernels.TEXT:
            return self._texts(data, cells, marks, bits, nulls)
        if kind == kernels.FLAG:
            return array(type_, rows, bits, np.packbits(cells != 0, bitorder="little"), nulls=nulls)
        if kind in (kernels.REAL, kernels.FLOAT):
            with np.errstate(all="ignore"):
                found: NDArray[Any] = cells.view(np.float64).astype(type_.to_pandas_dtype())
            later = np.flatnonzero(marks == kernels.LATER)
            if len(later):
                plain = np.full(len(later), kernels.PLAIN, np.uint8)
                texts = self._texts(data, cells[later], plain, None, 0)
                found[later] = texts.cast(type_).to_numpy()
        else:
            found = cells.astype(f"int{type_.bit_width}")
        return array(type_, rows, bits, found, nulls=nulls)

    def _texts(
        self,
        data: NDArray[np.uint8],
        cells: NDArray[np.int64],
        marks: NDArray[np.uint8],
        bits: NDArray[np.uint8] | None,
        nulls: int,
    ) -> pa.Array:
        sizes = np.where(marks, cells & 0x7FFFFFFF, 0)
        out = np.empty(int(sizes.sum()), np.uint8)
        edges = np.empty(len(cells) + 1, np.int32)
        self._kernels.gather(data, cells, marks, edges, out)
        return array(pa.string(), len(cells), bits, edges, out, nulls=nulls)


def _patterns(names: list[bytes]) -> tuple[NDArray[np.uint64], NDArray[np.int64]]:
    """Names as words, each followed by a mask of its valid bytes; and their sizes in bytes."""
    sizes = np.array([len(name) for name in names], np.int64)
    room = -(-int(sizes.max()) // 8) * 8
    texts, masks = (
        np.frombuffer(b"".join(each.ljust(room, b"\0") for each in made), np.uint64).reshape(len(names), -1)
        for made in (names, [b"\xff" * len(name) for name in names])
    )
    return np.stack([texts, masks], axis=2).reshape(len(names), -1), sizes


_objects = 0


def _worth(objects: int) -> bool:
    """Whether this process has had enough objects to parse, with these."""
    global _objects
    _objects += objects
    return _objects >= WORTH_LOADING


@cache
def _kernels() -> ModuleType | None:
    if sys.byteorder != "little":
        # The loops read eight bytes as one little-endian number.
        return None
    try:
        from ottla_pipeline.landing.parsing import compiling

        if compiling.uncached:
            # Without a cache, compiling takes as long as Arrow needs for millions of records.
            return None
        from ottla_pipeline.landing.parsing import kernels
    except Exception as error:
        # Any failure of numba on this machine: Arrow gives the same rows.
        why = str(error).partition("\n")[0]
        log.warning("numba can't be used, JSON is parsed several times slower without it: %s", why)
        return None
    return kernels


def _kind(kernels: Any, type_: pa.DataType) -> int | None:
    """The loops' kind for a type; None if they don't support it."""
    kinds: Sequence[tuple[bool, int]] = (
        (pa.types.is_signed_integer(type_), kernels.WHOLE),
        (type_ == pa.float64(), kernels.REAL),
        (type_ == pa.float32(), kernels.FLOAT),
        (type_ == pa.string(), kernels.TEXT),
        (type_ == pa.bool_(), kernels.FLAG),
        (type_ == pa.timestamp("us", "UTC"), kernels.STAMP),
        (type_ == pa.timestamp("us"), kernels.LOCAL),
        (type_ == pa.date32(), kernels.DAY),
    )
    return next((kind for fits, kind in kinds if fits), None)


def _escaped(name: str) -> bool:
    """Whether JSON has to escape the name."""
    return any(one < " " or one in '"\\' for one in name)
