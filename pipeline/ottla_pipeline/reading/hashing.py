"""The hash of a record, for whole columns at once.

``mix`` is the finaliser of SplitMix64, all arithmetic is modulo 2**64. A field of n bytes is cut into words of eight,
little-endian, the last filled up with zeros:

  hash(field)  = mix(n + LENGTH + sum of mix(word[i] + (i + 1) * STEP) over all words), NULL where it is null
  hash(record) = mix(mix(mix(offset + STEP) + hash(key)) + hash(value))

The sum over the words lets short fields be hashed side by side and long ones a field at a time, both with numpy, where
the compiled record engine is missing. Nothing of it may change: checksums are kept in tables.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import numpy as np
import pyarrow as pa

from ottla_protocol.records.scan import module

if TYPE_CHECKING:
    from numpy.typing import NDArray

    Words = NDArray[np.uint64]

STEP: Final = 0x9E3779B97F4A7C15
LENGTH: Final = 0xD1B54A32D192ED03
NULL: Final = 0x6A09E667F3BCC909
_LONG: Final = 1024
"""Fields of at least this many bytes are hashed one by one."""


def sum_of_hashes(keys: Any, values: Any, offsets: Any) -> int:
    """The sum of the records' hashes, of three columns as arrays or chunked arrays."""
    total = 0
    chunks = pa.table([keys, values, offsets], names=["key", "value", "offset"]).to_batches()
    for chunk in chunks:
        total += _sum(*chunk.columns)
    return total & 0xFFFFFFFFFFFFFFFF


def _sum(keys: pa.Array, values: pa.Array, offsets: pa.Array) -> int:
    rows = len(offsets)
    numbers = np.frombuffer(offsets.cast(pa.int64()).buffers()[1], np.int64)
    numbers = (
        numbers[offsets.offset : offsets.offset + rows] if offsets.type == pa.int64() else numbers[:rows]
    )
    hashes = _mix(numbers.view(np.uint64) + np.uint64(STEP))
    for column in (keys, values):
        hashes = _mix(hashes + _field(column))
    return int(hashes.sum(dtype=np.uint64))


def _field(column: pa.Array) -> Words:
    rows = len(column)
    if column.type not in (pa.binary(), pa.string()):
        column = column.cast(pa.binary())
    _, edge_buffer, data_buffer = column.buffers()
    nulls = np.asarray(column.is_null()) if column.null_count else None
    if data_buffer is None or not data_buffer.size:
        data = np.empty(0, np.uint8)
    else:
        data = np.frombuffer(data_buffer, np.uint8)
    edges = (
        np.frombuffer(edge_buffer, np.int32)[column.offset : column.offset + rows + 1]
        if rows
        else np.zeros(1, np.int32)
    )
    hashes = np.empty(rows, np.uint64)
    if module is not None:
        module.hash_fields(data, edges, hashes)
    else:
        _hash_fields(data, edges, hashes)
    if nulls is not None:
        hashes[nulls] = NULL
    return hashes


def _hash_fields(data: NDArray[np.uint8], edges: NDArray[np.int32], hashes: Words) -> None:
    """``hash_fields`` of the compiled engine, with numpy."""
    starts = edges[:-1].astype(np.int64)
    sizes = edges[1:].astype(np.int64) - starts
    sums = np.zeros(len(starts), np.uint64)
    long = sizes > _LONG
    # Each position of the data as the start of a word; eight zeros make the last ones words, too.
    padded = np.concatenate([data, np.zeros(8, np.uint8)])
    words: Words = np.ndarray((len(padded) - 7,), "<u8", padded, 0, (1,))
    rows = np.flatnonzero((sizes > 0) & ~long)
    index = 0
    while len(rows):
        left = np.minimum(sizes[rows] - 8 * index, 8).astype(np.uint64)
        word = words[starts[rows] + 8 * index] & (
            np.uint64(0xFFFFFFFFFFFFFFFF) >> (np.uint64(8) * (np.uint64(8) - left))
        )
        sums[rows] += _mix(word + np.uint64(((index + 1) * STEP) & 0xFFFFFFFFFFFFFFFF))
        index += 1
        rows = rows[sizes[rows] > 8 * index]
    for row in np.flatnonzero(long).tolist():
        field = data[starts[row] : starts[row] + sizes[row]].tobytes()
        whole = np.frombuffer(field + bytes(-len(field) % 8), "<u8")
        places = np.arange(1, len(whole) + 1, dtype=np.uint64) * np.uint64(STEP)
        sums[row] = _mix(whole + places).sum(dtype=np.uint64)
    hashes[:] = _mix(sums + sizes.astype(np.uint64) + np.uint64(LENGTH))


def _mix(numbers: Words) -> Words:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return numbers ^ (numbers >> np.uint64(31))
