"""Encodes columns as a batch, at the speed of C.

A record is a few numbers and two fields (``ottla_protocol.records.record`` describes the format). Each number becomes
one of few byte strings, so tables that fill on use look them up by ``map``. ``zip`` puts them between the fields, and
one ``join`` makes the batch. No Python statement runs per record, unless values or keys are missing or records have
headers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from itertools import chain, count, islice, repeat
from operator import add, sub
from typing import Generic, TypeVar

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    NO_TIMESTAMP,
    TRANSACTIONAL,
    BatchHeader,
)
from ottla_protocol.records.record import (
    encode_headers,
    encode_timestamp_delta,
    encode_varint,
    finish_batch,
)

T = TypeVar("T")

_TABLE_LIMIT = 8192
# The numbers of deltas whose varint has one, two and three bytes.
_DELTA_RANGES = ((1, 64), (2, 8192 - 64), (3, (1 << 20) - 8192), (4, (1 << 27) - (1 << 20)), (5, 1 << 31))
_NULL = -1
"""Stands for the size of a missing field; the format also writes this varint."""


class _Table(dict[int, T], Generic[T]):
    """Caches what ``make`` returns for a number, below a limit."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make = make

    def __missing__(self, number: int) -> T:
        made = self.make(number)
        if -_TABLE_LIMIT < number < _TABLE_LIMIT:
            self[number] = made
        return made


def _field_size(size: int) -> int:
    """Return the bytes of a field with its length in front."""
    return max(size, 0) + len(encode_varint(size))


_numbers: _Table[bytes] = _Table(encode_varint)
_field_sizes: _Table[int] = _Table(_field_size)
_stamps: _Table[bytes] = _Table(encode_timestamp_delta)
_deltas: list[bytes] = []
_keyless_deltas: list[bytes] = []


@lru_cache(maxsize=128)
def _starts(fixed: int, before: bytes, after: bytes) -> _Table[bytes]:
    """The bytes before a record's first varying field, by the size of its varying fields.

    ``fixed`` is the size of the other fields, ``before`` the end of the previous record, ``after`` what follows the
    length.
    """
    return _Table(lambda varying: before + encode_varint(fixed + varying) + after)


def _offset_deltas(records: int, keyless: bool) -> Iterator[bytes]:
    """Return the varints of 0, 1, 2 …, each followed by the missing key's length if ``keyless``."""
    table = _keyless_deltas if keyless else _deltas
    tail = b"\x01" if keyless else b""
    if len(table) < min(records, _TABLE_LIMIT):
        table += [encode_varint(delta) + tail for delta in range(len(table), min(records, _TABLE_LIMIT))]
    if records <= _TABLE_LIMIT:
        return iter(table)
    return chain(table, (encode_varint(delta) + tail for delta in count(_TABLE_LIMIT)))


def encode_columns(
    values: Sequence[bytes | None],
    *,
    keys: Sequence[bytes | None] | None = None,
    timestamps: Sequence[int] | int,
    headers: Sequence[Sequence[tuple[str, bytes | None]]] | None = None,
    codec: int = 0,
    level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """Encode columns of equal length as one batch, from offset 0.

    ``timestamps`` are milliseconds: one number for all records, or one each. ``keys`` and ``headers`` are optional.
    Values and keys are bytes, or bytes-like with items of one byte. The result equals that of ``encode_batch``.

    Raises LocalProtocolError for no records, columns of different lengths, and for numbers, header names, codecs or
    levels that the format doesn't have.
    """
    records = len(values)
    if not records:
        raise LocalProtocolError("a record batch needs a record")
    for name, column in (("keys", keys), ("headers", headers)):
        if column is not None and len(column) != records:
            raise LocalProtocolError(f"{len(column)} {name} for {records} values")
    stamps: list[bytes] | None = None
    if isinstance(timestamps, int):
        base_timestamp = max_timestamp = timestamps
    else:
        if len(timestamps) != records:
            raise LocalProtocolError(f"{len(timestamps)} timestamps for {records} values")
        base_timestamp = timestamps[0]
        max_timestamp = max(timestamps)
        if base_timestamp != max_timestamp or base_timestamp != min(timestamps):
            stamps = list(map(_stamps.__getitem__, map(sub, timestamps, repeat(base_timestamp))))
    if keys is not None and keys[0] is None and all(key is None for key in keys):
        keys = None
    tails: list[bytes] | None = None
    if headers is not None and any(headers):
        # Many records often share one object; encode it once.
        headers = list(headers)
        distinct = {id(each): each for each in headers}
        encoded = {key: encode_headers(each) if each else b"\0" for key, each in distinct.items()}
        tails = list(map(encoded.__getitem__, map(id, headers)))

    sizes, values = _sizes(values)
    if keys is None and stamps is None and tails is None:
        body = _join_values(sizes, values)
    else:
        body = _join_fields(sizes, values, keys, stamps, tails)
    header = BatchHeader(
        base_offset=0,
        batch_length=len(body) - LOG_OVERHEAD,
        partition_leader_epoch=NO_LEADER_EPOCH,
        magic=MAGIC,
        crc=0,
        attributes=codec | (TRANSACTIONAL if transactional else 0),
        last_offset_delta=records - 1,
        base_timestamp=base_timestamp,
        max_timestamp=max(max_timestamp, NO_TIMESTAMP),
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=records,
    )
    return finish_batch(header, body, level)


def _sizes(fields: Sequence[bytes | None]) -> tuple[list[int], Sequence[bytes]]:
    """Return the sizes of ``fields``, -1 for missing ones, and the fields with missing ones empty."""
    try:
        return list(map(len, fields)), fields  # type: ignore[arg-type,return-value]
    except TypeError:
        return (
            [_NULL if field is None else len(field) for field in fields],
            [b"" if field is None else field for field in fields],
        )


def _by_delta_size(records: int) -> Iterator[tuple[int, int]]:
    """Return how many of ``records`` have offset deltas of each size: (bytes, records), in order."""
    for size, room in _DELTA_RANGES:
        yield size, min(records, room)
        records -= room
        if records <= 0:
            return


# A record's last byte (no headers) is joined to the next one's first. So the pieces before the first record are one
# byte short of a header, and the last record gets its own.
_BEFORE_FIRST = bytes(HEADER_SIZE - 1)
_ATTRIBUTES_AND_STAMP = b"\0\0"


def _join_values(sizes: list[int], values: Sequence[bytes]) -> bytearray:
    """Encode records without keys or headers and with one timestamp, after room for a header."""
    records = len(sizes)
    if _are_equal(sizes):
        heads = _heads_of_sizes(_NULL, sizes[0], records)
        return bytearray().join(
            chain((_BEFORE_FIRST,), chain.from_iterable(zip(heads, values, strict=False)), (b"\0",))
        )
    totals = map(_field_sizes.__getitem__, sizes)
    columns = (
        _offset_deltas(records, True),
        map(_numbers.__getitem__, sizes),
        iter(values),
    )
    return _join(records, totals, columns, fixed=4, before=b"\0", after=_ATTRIBUTES_AND_STAMP)


def _join_pairs(key_size: int, keys: Sequence[bytes], size: int, values: Sequence[bytes]) -> bytearray:
    """Like ``_join_values``, with keys that all have ``key_size`` and values that all have ``size``."""
    heads = _heads_of_sizes(key_size, size, len(values))
    rows = zip(heads, keys, repeat(encode_varint(size)), values, strict=False)
    return bytearray().join(chain((_BEFORE_FIRST,), chain.from_iterable(rows), (b"\0",)))


def _join_fields(
    sizes: list[int],
    values: Sequence[bytes],
    keys: Sequence[bytes | None] | None,
    stamps: list[bytes] | None,
    tails: list[bytes] | None,
) -> bytearray:
    """Encode records of any kind after room for a header. Each of the last three columns is optional."""
    records = len(sizes)
    totals = map(_field_sizes.__getitem__, sizes)
    columns: list[Iterator[bytes]] = []
    fixed = 1
    after = b"\0"
    if stamps is None:
        fixed += 1
        after = _ATTRIBUTES_AND_STAMP
    else:
        totals = map(add, totals, map(len, stamps))
        columns.append(iter(stamps))
    columns.append(_offset_deltas(records, keys is None))
    if keys is None:
        fixed += 1
    else:
        key_sizes, keys = _sizes(keys)
        if stamps is None and tails is None and _are_equal(key_sizes) and _are_equal(sizes):
            return _join_pairs(key_sizes[0], keys, sizes[0], values)
        totals = map(add, totals, map(_field_sizes.__getitem__, key_sizes))
        columns += (map(_numbers.__getitem__, key_sizes), iter(keys))
    columns += (map(_numbers.__getitem__, sizes), iter(values))
    if tails is None:
        fixed += 1
        before = b"\0"
    else:
        totals = map(add, totals, map(len, tails))
        columns.append(iter(tails))
        before = b""
    return _join(records, totals, columns, fixed=fixed, before=before, after=after)


def _join(
    records: int,
    totals: Iterator[int],
    columns: Sequence[Iterator[bytes]],
    *,
    fixed: int,
    before: bytes,
    after: bytes,
) -> bytearray:
    """Encode one record per row of ``columns``; ``totals`` are the sizes of varying fields, ``fixed`` the rest.

    Neither includes the offset's size, which is added here.
    """
    parts: list[Iterable[bytes]] = [(bytes(HEADER_SIZE - len(before)),)]
    for size, rows in _by_delta_size(records):
        starts = map(_starts(fixed + size, before, after).__getitem__, islice(totals, rows))
        # The starts come first, so that zip takes nothing from the others when they end.
        parts.append(chain.from_iterable(zip(starts, *columns, strict=False)))
    parts.append((before,))
    return bytearray().join(chain.from_iterable(parts))


# With fields of one size, the bytes before a record's first field depend only on its number, and are cached.
_HEAD_LIMIT = 2048
_HEAD_SIZES = 16
_heads: dict[tuple[int, int], list[bytes]] = {}


def _are_equal(sizes: list[int]) -> bool:
    """Whether cached heads work for fields of these sizes."""
    return len(sizes) <= _HEAD_LIMIT and sizes[0] != _NULL and sizes.count(sizes[0]) == len(sizes)


def _heads_of_sizes(key_size: int, size: int, records: int) -> list[bytes]:
    """Return the bytes before the values of at least this many records, or before the keys with ``key_size``."""
    heads = _heads.get((key_size, size))
    if heads is None or len(heads) < records:
        if heads is None and len(_heads) >= _HEAD_SIZES:
            _heads.pop(next(iter(_heads)))
        keyless = key_size == _NULL
        total = _field_size(key_size) + _field_size(size)
        starts = chain.from_iterable(
            repeat(_starts(3 + delta_size, b"\0", _ATTRIBUTES_AND_STAMP)[total], rows)
            for delta_size, rows in _by_delta_size(records)
        )
        first_size = encode_varint(size if keyless else key_size)
        _heads[key_size, size] = heads = [
            start + delta + first_size
            for start, delta in zip(starts, _offset_deltas(records, keyless), strict=False)
        ]
    return heads
