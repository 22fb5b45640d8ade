"""A batch made of columns, joined at the speed of C.

A record is a few numbers and two fields (see ``ottla_protocol.records.record`` for the format). All numbers of
the same size are the same few bytes over and over, so they are looked up in tables that fill as they are used,
by ``map``; ``zip`` puts them between the fields, and one ``join`` makes the batch. No statement of Python runs
once a record, except where values or keys are missing or records have headers.
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
# Where the varint of an offset delta grows by a byte: so many deltas have one of one, two and three bytes.
_DELTA_RANGES = ((1, 64), (2, 8192 - 64), (3, (1 << 20) - 8192), (4, (1 << 27) - (1 << 20)), (5, 1 << 31))
_NULL = -1
"""Stands for the size of a field that is not there; its varint is how the format writes it, too."""


class _Table(dict[int, T], Generic[T]):
    """What ``make`` returns for a number, kept for numbers below the limit."""

    __slots__ = ("make",)

    def __init__(self, make: Callable[[int], T]) -> None:
        self.make = make

    def __missing__(self, number: int) -> T:
        made = self.make(number)
        if -_TABLE_LIMIT < number < _TABLE_LIMIT:
            self[number] = made
        return made


def _field_size(size: int) -> int:
    """Bytes of a field with its length in front."""
    return max(size, 0) + len(encode_varint(size))


_numbers: _Table[bytes] = _Table(encode_varint)
_field_sizes: _Table[int] = _Table(_field_size)
_stamps: _Table[bytes] = _Table(encode_timestamp_delta)
_deltas: list[bytes] = []
_keyless_deltas: list[bytes] = []


@lru_cache(maxsize=128)
def _starts(fixed: int, before: bytes, after: bytes) -> _Table[bytes]:
    """What stands before a record's first field that varies, by the size of those that do.

    ``fixed`` is the size of the others, ``before`` the end of the record before, ``after`` what follows the
    length.
    """
    return _Table(lambda varying: before + encode_varint(fixed + varying) + after)


def _offset_deltas(records: int, keyless: bool) -> Iterator[bytes]:
    """The varints of 0, 1, 2 …, each with the missing key's length behind it if ``keyless``."""
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
    """One batch of as many records as there are ``values``, from offset 0; the columns are of one length.

    ``timestamps`` are milliseconds, one number for all or one each. ``keys`` and ``headers`` may be left out.
    Values and keys are bytes, or something like bytes with items of one byte. The bytes are those that
    ``encode_batch`` makes of the same records.

    Raises LocalProtocolError for no records, columns of different lengths, and numbers, header names, codecs
    or levels that the format does not have.
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
        # Many records often share one object, which is then encoded once.
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
        batch_length=0,
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
    """The sizes of ``fields``, -1 for those missing, and the fields with nothing in the missing ones' place."""
    try:
        return list(map(len, fields)), fields  # type: ignore[arg-type,return-value]
    except TypeError:
        return (
            [_NULL if field is None else len(field) for field in fields],
            [b"" if field is None else field for field in fields],
        )


def _by_delta_size(records: int) -> Iterator[tuple[int, int]]:
    """How many of ``records`` have an offset delta of how many bytes: (bytes, records), in order."""
    for size, room in _DELTA_RANGES:
        yield size, min(records, room)
        records -= room
        if records <= 0:
            return


# A record's last byte, no headers, is joined to the next one's first: the pieces before the first record are
# therefore one byte short of a header, and the last record gets its own.
_BEFORE_FIRST = bytes(HEADER_SIZE - 1)
_ATTRIBUTES_AND_STAMP = b"\0\0"


def _join_values(sizes: list[int], values: Sequence[bytes]) -> bytearray:
    """Records without keys or headers, all of one timestamp, behind room for a header."""
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
    """As ``_join_values``, with keys that are all of ``key_size``, and values that are all of ``size``."""
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
    """Records of any kind, behind room for a header: each of the last three columns may be left out."""
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
    """One record of each row of ``columns``; ``totals`` are the sizes of what varies, ``fixed`` of the rest.

    The offset's size counts to neither: it is added here.
    """
    parts: list[Iterable[bytes]] = [(bytes(HEADER_SIZE - len(before)),)]
    for size, rows in _by_delta_size(records):
        starts = map(_starts(fixed + size, before, after).__getitem__, islice(totals, rows))
        # The starts come first, so that where they end zip takes nothing from the others.
        parts.append(chain.from_iterable(zip(starts, *columns, strict=False)))
    parts.append((before,))
    return bytearray().join(chain.from_iterable(parts))


# For fields of one size, everything before a record's first field depends on the record's number alone, and is kept.
_HEAD_LIMIT = 2048
_HEAD_SIZES = 16
_heads: dict[tuple[int, int], list[bytes]] = {}


def _are_equal(sizes: list[int]) -> bool:
    """Whether heads may be used for fields of these sizes."""
    return len(sizes) <= _HEAD_LIMIT and sizes[0] != _NULL and sizes.count(sizes[0]) == len(sizes)


def _heads_of_sizes(key_size: int, size: int, records: int) -> list[bytes]:
    """What stands before the value of at least so many records, or before the key where ``key_size`` is one."""
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
