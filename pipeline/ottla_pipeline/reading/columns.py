"""Makes Arrow arrays from numpy's, and the columns that are the same in every row."""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from .schema import schema

if TYPE_CHECKING:
    from numpy.typing import NDArray

_STEP: Final = 1 << 16
_MAX_MILLIS: Final = (2**63 - 1) // 1000
"""The most milliseconds that fit into 64 bits as microseconds."""


def array(type_: pa.DataType, rows: int, *buffers: NDArray[Any] | None, nulls: int = 0) -> pa.Array:
    """An array of ``rows``: validity (None: no nulls), then the type's own buffers, which may be longer than needed."""
    made = [None if buffer is None else pa.py_buffer(buffer) for buffer in buffers]
    return pa.Array.from_buffers(type_, rows, made, nulls)


def constants(topic: str, partition: int, log_append_time: bool, rows: int) -> dict[str, pa.Array]:
    """The columns topic, partition and timestampType of ``rows`` rows."""
    room = -(-rows // _STEP) * _STEP
    return {
        "topic": _text(topic, room).slice(0, rows),
        "partition": _number(partition, room).slice(0, rows),
        "timestampType": _number(int(log_append_time), room).slice(0, rows),
    }


@lru_cache(maxsize=4)
def _text(text: str, rows: int) -> pa.Array:
    data = text.encode()
    edges = np.arange(rows + 1, dtype=np.int32) * np.int32(len(data))
    return array(pa.string(), rows, None, edges, np.frombuffer(data * rows, np.uint8))


@lru_cache(maxsize=8)
def _number(number: int, rows: int) -> pa.Array:
    return array(pa.int32(), rows, None, np.full(rows, number, np.int32))


def micros(millis: NDArray[np.int64], into: NDArray[np.int64] | None = None) -> pa.Array:
    """Milliseconds as microseconds; null where they don't fit into 64 bits. ``into`` may be their own memory."""
    rows = len(millis)
    if not rows or (millis.min() >= -_MAX_MILLIS and millis.max() <= _MAX_MILLIS):
        return array(pa.timestamp("us", "UTC"), rows, None, np.multiply(millis, 1000, out=into))
    fits = (millis >= -_MAX_MILLIS) & (millis <= _MAX_MILLIS)
    bits = np.packbits(fits, bitorder="little")
    return array(pa.timestamp("us", "UTC"), rows, bits, np.where(fits, millis, 0) * 1000, nulls=-1)


def record_batch(columns: dict[str, pa.Array], wanted: tuple[str, ...]) -> pa.RecordBatch:
    return pa.RecordBatch.from_arrays([columns[name] for name in wanted], schema=schema(wanted))
