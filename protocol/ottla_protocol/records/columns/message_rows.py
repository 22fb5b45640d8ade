"""Encodes records of one layout as a table whose rows are messages of format 0 or 1, with numpy.

numpy lets other threads run in all that takes long here.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from ottla_protocol.records.columns.parse import Flags, Integers, Spans

    Words = NDArray[np.uint32]

_CRC_FROM = 16
"""Where the bytes begin that a message's CRC covers."""
_SIZE_FROM = 12
_LARGEST_ROW = 4096
"""Longer messages are few, and zlib's checksum of a long one is faster than this module's."""


def encode_rows(
    spans: Spans, start: int, stop: int, magic: int, attributes: int, base_offset: int
) -> bytes | None:
    """Encode the records ``start`` to ``stop``; None if their keys or values differ in size, or are large."""
    key_size = _common(spans.key_sizes[start:stop], spans.key_nulls, start, stop)
    value_size = _common(spans.value_sizes[start:stop], spans.value_nulls, start, stop)
    if key_size is None or value_size is None or key_size + value_size > _LARGEST_ROW:
        return None
    rows: NDArray[Any] = np.empty(stop - start, _row_type(magic, max(key_size, 0), max(value_size, 0)))
    rows["offset"] = spans.offsets[start:stop] - base_offset
    rows["size"] = rows.itemsize - _SIZE_FROM
    rows["magic"] = magic
    rows["attributes"] = attributes
    rows["key_size"] = key_size
    rows["value_size"] = value_size
    if magic:
        rows["timestamp"] = spans.timestamps[start:stop]
    if key_size > 0:
        rows["key"] = _gather(spans.data, spans.key_starts[start:stop], key_size)
    if value_size > 0:
        rows["value"] = _gather(spans.data, spans.value_starts[start:stop], value_size)
    rows["crc"] = crc32_of_rows(rows)
    return rows.tobytes()


def _common(sizes: Integers, nulls: Flags | None, start: int, stop: int) -> int | None:
    """The size of all fields, -1 if all are missing; None if they differ."""
    size = int(sizes[0])
    if not (sizes == size).all():
        return None
    if nulls is None:
        return size
    missing = nulls[start:stop]
    if missing.all():
        return -1
    return None if missing.any() else size


@lru_cache(maxsize=64)
def _row_type(magic: int, key_size: int, value_size: int) -> np.dtype[Any]:
    fields: list[tuple[str, str]] = [
        ("offset", ">i8"),
        ("size", ">i4"),
        ("crc", ">u4"),
        ("magic", "u1"),
        ("attributes", "u1"),
    ]
    if magic:
        fields.append(("timestamp", ">i8"))
    fields.append(("key_size", ">i4"))
    if key_size:
        fields.append(("key", f"V{key_size}"))
    fields.append(("value_size", ">i4"))
    if value_size:
        fields.append(("value", f"V{value_size}"))
    return np.dtype(fields)


def _gather(data: bytes, starts: Integers, size: int) -> NDArray[np.void]:
    everywhere: NDArray[np.void] = np.ndarray((len(data) - size + 1,), f"V{size}", data, 0, (1,))
    gathered: NDArray[np.void] = everywhere[starts]
    return gathered


# CRC-32, four bytes of all rows at a time. A word changes the sum by a number that depends on the word's halves alone:
# each of two tables has it for one half.
_POLYNOMIAL = 0xEDB88320


@lru_cache(maxsize=1)
def _tables() -> tuple[Words, Words, Words]:
    """The tables for the lower and the higher half of a word, and for a single byte."""
    byte = np.arange(256, dtype=np.uint32)
    for _ in range(8):
        byte = (byte >> np.uint32(1)) ^ (np.uint32(_POLYNOMIAL) * (byte & np.uint32(1)))
    halves = np.arange(1 << 16, dtype=np.uint32)
    low, high = halves, halves << np.uint32(16)
    for _ in range(4):
        low = (low >> np.uint32(8)) ^ byte[low & np.uint32(0xFF)]
        high = (high >> np.uint32(8)) ^ byte[high & np.uint32(0xFF)]
    return low, high, byte


def crc32_of_rows(rows: NDArray[Any]) -> Words:
    """Return the CRC-32 of each row, without its first 16 bytes."""
    count, length = len(rows), rows.itemsize - _CRC_FROM
    low, high, byte = _tables()
    whole = length // 4
    # A word of all rows side by side.
    words: Words = np.ndarray((whole, count), "<u4", rows, _CRC_FROM, (4, rows.itemsize)).copy()
    sums = np.full(count, 0xFFFFFFFF, np.uint32)
    half = np.empty(count, np.uint32)
    for column in words:
        np.bitwise_xor(sums, column, out=sums)
        np.bitwise_and(sums, np.uint32(0xFFFF), out=half)
        np.right_shift(sums, np.uint32(16), out=sums)
        np.bitwise_xor(low.take(half), high.take(sums), out=sums)
    rest: NDArray[np.uint8] = np.ndarray(
        (length - 4 * whole, count), np.uint8, rows, _CRC_FROM + 4 * whole, (1, rows.itemsize)
    )
    for last in rest:
        sums = (sums >> np.uint32(8)) ^ byte[(sums ^ last) & np.uint32(0xFF)]
    return ~sums
