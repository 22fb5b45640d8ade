"""Batches decoded by the compiled loops of ``kernels``, straight into Arrow's buffers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ottla_protocol.records.batch import CODEC_MASK, HEADER_SIZE, LOG_APPEND_TIME, read_header
from ottla_protocol.records.record import MIN_RECORD_SIZE, record_data

from . import kernels
from .batches import AT, ATTRIBUTES, BASE, COUNT, MAX_STAMP, SIZE, STAMP, as_octets
from .columns import array, constants, record_batch
from .plain import PlainEngine
from .schema import HEADER_LIST

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from .batches import Octets, Table
    from .ranges import OffsetRange

_SAFE_STAMP: Final = 2**62
_MOST_BASE: Final = 2**63 - 2**31
_TOTALS: Final = 9


class CompiledEngine:
    """Decodes groups of batches. A group has one timestamp type, and is compressed or not."""

    walk = staticmethod(kernels.walk)

    def __init__(self, range: OffsetRange, wanted: tuple[str, ...]) -> None:
        self._range = range
        self._wanted = wanted
        self._plain = PlainEngine(range, wanted)

    def decode(self, data: Octets, table: Table, first: int) -> list[pa.RecordBatch]:
        """The range's records from offset ``first`` on, of the batches in ``table``, whose bytes are in ``data``.

        Raises CorruptRecordError if a batch is broken.
        """
        counts = table[:, COUNT]
        unusual = (
            (counts < 0) | (table[:, BASE] > _MOST_BASE) | (np.abs(table[:, STAMP]) >= _SAFE_STAMP)
        ).any()
        if not unusual:
            octets, pieces = _pieces(data, table)
            sizes = pieces[:, 1] - pieces[:, 0]
            if (counts * MIN_RECORD_SIZE <= sizes).all():
                batch = self._decode(octets, pieces, first, int(counts.sum()), int(sizes.sum()))
                if batch is not None:
                    return [batch] if batch.num_rows else []
        return self._plain.decode(data, table, first)

    def _decode(self, data: Octets, pieces: Table, first: int, rows: int, size: int) -> pa.RecordBatch | None:
        """Decode at most this many rows and bytes; None if something is unusual."""
        wanted = self._wanted
        range = self._range
        append_time = bool(pieces[0, 5])
        offsets = _room("offset" in wanted, rows, np.int64)
        stamps = _room("timestamp" in wanted, rows, np.int64)
        headers_at = _room("headers" in wanted, rows, np.int64)
        keys = Field("key" in wanted, rows, size)
        values = Field("value" in wanted, rows, size)
        stamp_valid = np.ones(len(stamps), np.uint8)
        totals = np.zeros(_TOTALS, np.int64)
        good = kernels.decode(
            data,
            pieces,
            first,
            range.end,
            *("key" in wanted, "value" in wanted),
            *(offsets, stamps, stamp_valid),
            *(keys.edges, keys.data, keys.valid),
            *(values.edges, values.data, values.valid),
            headers_at,
            totals,
        )
        if not good:
            return None
        rows, _, _, stamp_nulls, key_nulls, value_nulls, headers, names, others = totals.tolist()
        columns = constants(range.topic, range.partition, append_time, rows)
        if "key" in wanted:
            columns["key"] = keys.array(rows, key_nulls)
        if "value" in wanted:
            columns["value"] = values.array(rows, value_nulls)
        if "offset" in wanted:
            columns["offset"] = array(pa.int64(), rows, None, offsets)
        if "timestamp" in wanted:
            bits = _bits(stamp_valid, rows) if stamp_nulls else None
            columns["timestamp"] = array(pa.timestamp("us", "UTC"), rows, bits, stamps, nulls=stamp_nulls)
        if "headers" in wanted:
            columns["headers"] = _headers(data, headers_at[:rows], headers, names, others)
        return record_batch(columns, wanted)


class Field:
    """Room for a binary column; empty if it isn't wanted."""

    __slots__ = ("data", "edges", "valid")

    def __init__(self, wanted: bool, rows: int, size: int) -> None:
        self.edges = _room(wanted, rows + 1, np.int32)
        self.data = _room(wanted, size, np.uint8)
        self.valid = np.ones(rows if wanted else 0, np.uint8)

    def array(self, rows: int, nulls: int, type_: pa.DataType | None = None) -> pa.Array:
        used = int(self.edges[rows]) if len(self.edges) else 0
        if 2 * used < len(self.data):
            # Keeping the array must not keep the other field's room.
            self.data = self.data[:used].copy()
        bits = _bits(self.valid, rows) if nulls else None
        return array(type_ or pa.binary(), rows, bits, self.edges, self.data, nulls=nulls)


def _pieces(data: Octets, table: Table) -> tuple[Octets, Table]:
    """The batches' records as ``kernels.decode`` takes them, and their bytes. Raises CorruptRecordError."""
    pieces = np.empty((len(table), 6), np.int64)
    append_time = (table[:, ATTRIBUTES] & LOG_APPEND_TIME) != 0
    pieces[:, 2] = table[:, COUNT]
    pieces[:, 3] = table[:, BASE]
    pieces[:, 4] = np.where(append_time, table[:, MAX_STAMP], table[:, STAMP])
    pieces[:, 5] = append_time
    if not table[0, ATTRIBUTES] & CODEC_MASK:
        pieces[:, 0] = table[:, AT] + HEADER_SIZE
        pieces[:, 1] = table[:, AT] + table[:, SIZE]
        return data, pieces
    view = data.data
    parts = [record_data(view, at, read_header(view, at), None) for at in table[:, AT].tolist()]
    ends = np.cumsum([len(part) for part in parts])
    pieces[:, 0] = 0
    pieces[1:, 0] = ends[:-1]
    pieces[:, 1] = ends
    return as_octets(parts[0] if len(parts) == 1 else b"".join(parts)), pieces


def _room(wanted: bool, size: int, type_: type[np.generic]) -> NDArray[Any]:
    """Memory from Arrow's pool, which is reused: the first touch of new memory is slow."""
    room: NDArray[Any] = np.frombuffer(
        pa.allocate_buffer(size * np.dtype(type_).itemsize if wanted else 0), type_
    )
    return room


def _bits(valid: Octets, rows: int) -> Octets:
    return np.packbits(valid[:rows], bitorder="little")


def _headers(data: Octets, headers_at: NDArray[np.int64], count: int, names: int, others: int) -> pa.Array:
    """The column ``headers``: null where a record has none."""
    rows = len(headers_at)
    edges = np.empty(rows + 1, np.int32)
    valid = np.ones(rows, np.uint8)
    name = Field(True, count, names)
    value = Field(True, count, others)
    ascii_only = kernels.decode_headers(
        data, headers_at, edges, valid, name.edges, name.data, value.edges, value.data, value.valid
    )
    keys = name.array(count, 0, pa.string()) if ascii_only else _as_text(name.array(count, 0))
    pairs = pa.StructArray.from_arrays([keys, value.array(count, -1)], ["key", "value"])
    return pa.Array.from_buffers(
        HEADER_LIST, rows, [pa.py_buffer(_bits(valid, rows)), pa.py_buffer(edges)], -1, children=[pairs]
    )


def _as_text(names: pa.Array) -> pa.Array:
    """Names as UTF-8, with ``?`` for each invalid byte."""
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:
        texts = [name.decode("utf-8", "surrogateescape") for name in names.to_pylist()]
        return pa.array([text.encode("utf-8", "replace").decode() for text in texts], pa.string())
