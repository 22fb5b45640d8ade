"""Decodes batches by the compiled record engine, straight into Arrow's buffers.

What it finds unusual, or where it is missing, ``plain`` decodes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ottla_client.lowlevel import MAX_HEADERS
from ottla_protocol.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, read_header
from ottla_protocol.records.record import MIN_RECORD_SIZE, record_data
from ottla_protocol.records.scan import module

from .batches import AT, ATTRIBUTES, BASE, COUNT, MAX_STAMP, SIZE, STAMP, as_octets
from .columns import array, constants, micros, record_batch
from .plain import PlainEngine
from .schema import HEADER_LIST

if TYPE_CHECKING:
    from collections.abc import Iterator

    from numpy.typing import NDArray

    from .batches import Octets, Table
    from .ranges import OffsetRange

    Integers = NDArray[np.int64]

_compiled: Any = module
_MOST_BASE: Final = 2**63 - 2**31
_MOST_BYTES: Final = 64 * 1024 * 1024
"""Decompressed batches are decoded together until they have so many bytes. One alone may have more."""


class Engine:
    """Decodes groups of batches. A group has one timestamp type, and is compressed or not."""

    def __init__(self, range: OffsetRange, wanted: tuple[str, ...]) -> None:
        self._range = range
        self._wanted = wanted
        self._plain = PlainEngine(range, wanted)

    def decode(self, data: Octets, table: Table, first: int) -> list[pa.RecordBatch]:
        """The range's records from offset ``first`` on, of the batches in ``table``, whose bytes are in ``data``.

        Raises CorruptRecordError if a batch is broken.
        """
        if _compiled is not None:
            made: list[pa.RecordBatch] = []
            for octets, pieces in _portions(data, table):
                if (batch := self._decode(octets, pieces, first)) is None:
                    break
                if batch.num_rows:
                    made.append(batch)
            else:
                return made
        return self._plain.decode(data, table, first)

    def _decode(self, data: Octets, pieces: Table, first: int) -> pa.RecordBatch | None:
        """Decode these batches' records; None if something is unusual."""
        counts = pieces[:, 2]
        too_many = counts * MIN_RECORD_SIZE > pieces[:, 1] - pieces[:, 0]
        if (too_many | (counts < 0) | (pieces[:, 3] > _MOST_BASE)).any():
            return None
        rows, size = int(counts.sum()), int((pieces[:, 1] - pieces[:, 0]).sum())
        range, wanted = self._range, self._wanted
        numbers = _room(3 * rows, np.int64)
        keys, values = (Fields(rows if name in wanted else -1, size) for name in ("key", "value"))
        found = _compiled.decode(
            data, pieces, first, range.end, MAX_HEADERS, numbers, keys.buffers, values.buffers
        )
        if found is None:
            return None
        offsets, stamps, headers_at = numbers.reshape(3, -1)[:, : found[0]]
        rows, key_nulls, value_nulls, headers = found
        columns = constants(range.topic, range.partition, bool(pieces[0, 5]), rows)
        if "key" in wanted:
            columns["key"] = keys.array(rows, key_nulls)
        if "value" in wanted:
            columns["value"] = values.array(rows, value_nulls)
        if "offset" in wanted:
            columns["offset"] = array(pa.int64(), rows, None, offsets)
        if "timestamp" in wanted:
            columns["timestamp"] = micros(stamps, into=stamps)
        if "headers" in wanted:
            columns["headers"] = _headers(data, headers_at, headers)
        return record_batch(columns, wanted)


class Fields:
    """Room for a binary column of so many rows and bytes; of -1 rows if it isn't wanted."""

    __slots__ = ("buffers",)

    def __init__(self, rows: int, size: int) -> None:
        self.buffers = (
            _room(rows + 1, np.int32),
            _room(size if rows >= 0 else 0, np.uint8),
            _room((rows + 7) // 8, np.uint8),
        )

    def array(self, rows: int, nulls: int) -> pa.Array:
        edges, data, valid = self.buffers
        used = int(edges[rows]) if rows else 0
        if 2 * used < len(data):
            # Keeping the array must not keep the other field's room.
            data = data[:used].copy()
        return array(pa.binary(), rows, valid if nulls else None, edges, data, nulls=nulls)


def _portions(data: Octets, table: Table) -> Iterator[tuple[Octets, Table]]:
    """The batches' records as ``module.decode`` takes them, and their bytes. Raises CorruptRecordError."""
    pieces = np.empty((len(table), 6), np.int64)
    append_time = (table[:, ATTRIBUTES] & LOG_APPEND_TIME) != 0
    pieces[:, 2] = table[:, COUNT]
    pieces[:, 3] = table[:, BASE]
    pieces[:, 4] = np.where(append_time, table[:, MAX_STAMP], table[:, STAMP])
    pieces[:, 5] = append_time
    if not table[0, ATTRIBUTES] & CODEC_MASK:
        pieces[:, 0] = table[:, AT] + HEADER_SIZE
        pieces[:, 1] = table[:, AT] + table[:, SIZE]
        yield data, pieces
        return
    view = data.data
    parts: list[bytes | memoryview] = []
    first = size = 0
    for row, at in enumerate(table[:, AT].tolist()):
        part = record_data(view, at, read_header(view, at), None)
        if parts and size + len(part) > _MOST_BYTES:
            yield as_octets(b"".join(parts)), pieces[first:row]
            parts, first, size = [], row, 0
        pieces[row, 0] = size
        size += len(part)
        pieces[row, 1] = size
        parts.append(part)
    yield as_octets(parts[0] if len(parts) == 1 else b"".join(parts)), pieces[first:]


def _room(size: int, type_: type[np.generic]) -> NDArray[Any]:
    """Memory from Arrow's pool, which is reused: the first touch of new memory is slow."""
    room: NDArray[Any] = np.frombuffer(pa.allocate_buffer(size * np.dtype(type_).itemsize), type_)
    return room


def _gathered(data: Octets, starts: Integers, sizes: Integers) -> pa.Array:
    fields = Fields(len(sizes), int(sizes[sizes > 0].sum()))
    return fields.array(len(sizes), _compiled.gather(data, starts, sizes, *fields.buffers))


def _headers(data: Octets, headers_at: Integers, count: int) -> pa.Array:
    """The column ``headers``: null where a record has none."""
    rows = len(headers_at)
    edges = np.empty(rows + 1, np.int32)
    pairs = np.empty((4, count), np.int64)
    _compiled.headers(data, headers_at, edges, pairs)
    names, values = _gathered(data, *pairs[:2]), _gathered(data, *pairs[2:])
    pair = pa.StructArray.from_arrays([_as_text(names), values], ["key", "value"])
    bits = np.packbits(headers_at >= 0, bitorder="little")
    return pa.Array.from_buffers(
        HEADER_LIST, rows, [pa.py_buffer(bits), pa.py_buffer(edges)], -1, children=[pair]
    )


def _as_text(names: pa.Array) -> pa.Array:
    """Names as UTF-8, with ``?`` for each invalid byte."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.decode("utf-8", "surrogateescape") for name in names.to_pylist()]
        return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())
