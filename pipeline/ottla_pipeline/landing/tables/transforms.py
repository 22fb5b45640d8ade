"""Partition values of rows: Iceberg's transforms (its specification, "Partition Transforms"), on whole columns."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from decimal import Context, Decimal
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

_PARAMETER = re.compile(r"(\w+)(?:\[(\d+)\])?")
EXACT = Context(prec=76)
"""Rounds no decimal of a table: the default has 28 digits."""
_UNITS: Mapping[str, str] = {"year": "Y", "month": "M", "day": "D", "hour": "h"}


def is_writable(transform: str, kind: pa.DataType) -> bool:
    """Whether rows can be put into partitions by this transform of a column of this type."""
    name, _ = _parsed(transform)
    is_date, is_time = pa.types.is_date32(kind), pa.types.is_timestamp(kind)
    is_text = pa.types.is_string(kind) or pa.types.is_large_string(kind)
    is_number = pa.types.is_integer(kind) or pa.types.is_decimal128(kind)
    if is_time and kind.unit != "us":
        return name == "void"
    allowed = {
        "void": True,
        "identity": is_text or is_number or is_date or is_time or pa.types.is_boolean(kind),
        "bucket": is_text or is_number or is_date or is_time,
        "truncate": is_text or is_number,
        **dict.fromkeys(("year", "month", "day"), is_date or is_time),
        "hour": is_time,
    }
    return bool(allowed.get(name, False))


def transformed(transform: str, column: pa.ChunkedArray) -> pa.Array:
    """The value of each row; the transform has to be writable."""
    name, parameter = _parsed(transform)
    array = column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if name == "identity":
        return array
    if name == "void":
        return pa.nulls(len(array), pa.string())
    if name in _UNITS:
        return _since_1970(array, _UNITS[name])
    return (_bucket if name == "bucket" else _truncated)(array, parameter)


def texts(values: pa.Array) -> list[str | None]:
    """Partition values as text, which names folders and which every format's commits can have."""
    kind = values.type
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        # Python's dates end with the year 9999.
        plain = values.cast(pa.int32() if pa.types.is_date32(kind) else pa.int64())
        unit: Any = "D" if pa.types.is_date32(kind) else kind.unit
        return [None if one is None else str(np.datetime64(one, unit)) for one in plain.to_pylist()]
    return [
        None if one is None else str(one).lower() if isinstance(one, bool) else str(one)
        for one in values.to_pylist()
    ]


def from_text(text: str | None, kind: pa.DataType) -> Any:
    """The value again, as Iceberg's metadata have it: dates and times as numbers."""
    if text is None:
        return None
    if pa.types.is_date32(kind) or pa.types.is_timestamp(kind):
        unit: Any = "D" if pa.types.is_date32(kind) else kind.unit
        return int(np.datetime64(text, unit).astype(np.int64))
    if pa.types.is_boolean(kind):
        return text == "true"
    if pa.types.is_integer(kind):
        return int(text)
    return Decimal(text) if pa.types.is_decimal(kind) else text


def _parsed(transform: str) -> tuple[str, int]:
    found = _PARAMETER.fullmatch(transform)
    return (found[1], int(found[2] or 0)) if found else (transform, 0)


def _since_1970(array: pa.Array, unit: str) -> pa.Array:
    of, plain = ("D", pa.int32()) if pa.types.is_date32(array.type) else ("us", pa.int64())
    numbers = array.cast(plain).fill_null(0).to_numpy(zero_copy_only=False)
    found = numbers.astype(f"datetime64[{of}]").astype(f"datetime64[{unit}]").astype(np.int64)
    days = pa.array(found.astype(np.int32), pa.int32(), mask=_nulls(array))
    return days.cast(pa.date32()) if unit == "D" else days


def _bucket(array: pa.Array, buckets: int) -> pa.Array:
    kind = array.type
    if pa.types.is_decimal(kind):
        return _each(array, lambda value: _hashed(_bytes_of(value, kind.scale)) % buckets, pa.int32())
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return _each(array.cast(pa.large_binary()), lambda value: _hashed(value) % buckets, pa.int32())
    plain = array.cast(pa.int32()) if pa.types.is_date32(kind) else array
    numbers = plain.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    found = (_murmur(numbers) & np.uint32(0x7FFFFFFF)) % np.uint32(buckets)
    return pa.array(found.astype(np.int32), pa.int32(), mask=_nulls(array))


def _truncated(array: pa.Array, width: int) -> pa.Array:
    kind = array.type
    if pa.types.is_decimal(kind):
        return _each(array, lambda value: _truncated_decimal(value, kind.scale, width), kind)
    if pa.types.is_string(kind) or pa.types.is_large_string(kind):
        return pc.utf8_slice_codeunits(array, 0, width)
    numbers = array.cast(pa.int64()).fill_null(0).to_numpy(zero_copy_only=False)
    return pa.array(numbers - numbers % width, pa.int64(), mask=_nulls(array)).cast(kind, safe=False)


def _nulls(array: pa.Array) -> Any:
    return array.is_null().to_numpy(zero_copy_only=False)


def _each(array: pa.Array, compute: Callable[[Any], Any], kind: pa.DataType) -> pa.Array:
    """One distinct value at a time."""
    encoded = array.dictionary_encode()
    found = pa.array([None if v is None else compute(v) for v in encoded.dictionary.to_pylist()], kind)
    return found.take(encoded.indices)


def _bytes_of(value: Decimal, scale: int) -> bytes:
    unscaled = int(value.scaleb(scale, EXACT))
    size = ((unscaled if unscaled >= 0 else ~unscaled).bit_length() + 8) // 8
    return unscaled.to_bytes(size, "big", signed=True)


def _truncated_decimal(value: Decimal, scale: int, width: int) -> Decimal:
    unscaled = int(value.scaleb(scale, EXACT))
    return Decimal(unscaled - unscaled % width).scaleb(-scale, EXACT)


def _hashed(data: bytes) -> int:
    import mmh3

    return mmh3.hash(data) & 0x7FFFFFFF


def _murmur(numbers: NDArray[np.int64]) -> NDArray[np.uint32]:
    """MurmurHash3's 32-bit variant for x86, with seed 0, of the eight bytes of each number."""
    with np.errstate(over="ignore"):
        found = np.zeros(len(numbers), np.uint32)
        for bits in (0, 32):
            found ^= _mixed((numbers >> bits).astype(np.uint32))
            found = _rotated(found, 13) * np.uint32(5) + np.uint32(0xE6546B64)
        found ^= np.uint32(8)
        found ^= found >> np.uint32(16)
        found *= np.uint32(0x85EBCA6B)
        found ^= found >> np.uint32(13)
        found *= np.uint32(0xC2B2AE35)
        return found ^ (found >> np.uint32(16))


def _mixed(block: Any) -> Any:
    return _rotated(block * np.uint32(0xCC9E2D51), 15) * np.uint32(0x1B873593)


def _rotated(value: Any, bits: int) -> Any:
    return (value << np.uint32(bits)) | (value >> np.uint32(32 - bits))
