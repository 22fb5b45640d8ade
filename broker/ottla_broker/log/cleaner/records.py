"""A batch's records as compaction sees them, in Python: what each one's key is, whether it has a value, and what stays.

Values and headers are skipped, never decoded; a record that stays is copied byte by byte. A record::

    length            varint   bytes after this field
    attributes        int8
    timestamp delta   varint   ms, from the batch's base timestamp
    offset delta      varint   from the batch's base offset
    key length        varint   -1: no key
    key
    value length      varint   -1: no value, a tombstone
    value, headers             skipped

Varints are zigzag-encoded as in Protocol Buffers. Source: Kafka's DefaultRecord.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.record import encode_varint

_BITS: Final = 64
_LONGEST_VARINT_SHIFT: Final = 63
_INT32_MAX: Final = 2**31 - 1
# The value length -1 in zigzag.
_NO_VALUE: Final = 1
INT64_MIN: Final = -(2**63)
_new = tuple.__new__


class RecordSpan(NamedTuple):
    """One record of a decompressed batch; positions count from the first byte of the first record."""

    start: int
    end: int
    # Where the timestamp delta begins: after the attributes.
    timestamp_at: int
    offset_at: int
    timestamp_delta: int
    offset_delta: int
    key: bytes | None
    has_value: bool


class Choice(NamedTuple):
    """The records of a batch that stay.

    ``kept`` and ``keyless`` count the records that stay, and those that go because they have no key.
    ``max_timestamp`` is the largest of those that stay, INT64_MIN without any. ``moved``: the timestamp deltas in
    ``body`` count from the delete horizon. ``body`` is the records that stay; empty if nothing changes.
    """

    kept: int
    keyless: int
    max_timestamp: int
    moved: bool
    body: bytes


NOTHING: Final = Choice(0, 0, INT64_MIN, False, b"")
"""Every record goes."""


def read_varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and the position after it. Raises IndexError at the end of the data, CorruptRecordError."""
    byte = data[position]
    position += 1
    raw = byte & 0x7F
    shift = 7
    while byte & 0x80:
        if shift > _LONGEST_VARINT_SHIFT:
            raise CorruptRecordError("a varint in a record is longer than ten bytes")
        byte = data[position]
        position += 1
        raw |= (byte & 0x7F) << shift
        shift += 7
    if raw >> _BITS:
        raise CorruptRecordError("a varint in a record has more than 64 bits")
    return (raw >> 1) ^ -(raw & 1), position


def walk(data: bytes, count: int) -> Iterator[RecordSpan]:
    """The ``count`` records in ``data``, the uncompressed bytes after a batch's header.

    Raises CorruptRecordError unless the bytes are exactly that many records.
    """
    position = 0
    total = len(data)
    try:
        for _ in range(count):
            start = position
            # Numbers of one byte, which nearly all are, are read here without a call.
            byte = data[position]
            if byte < 0x80:
                end = position + 1 + ((byte >> 1) ^ -(byte & 1))
                timestamp_at = position + 2
            else:
                length, position = read_varint(data, position)
                end = position + length
                timestamp_at = position + 1
            byte = data[timestamp_at]
            if byte < 0x80:
                timestamp = (byte >> 1) ^ -(byte & 1)
                offset_at = timestamp_at + 1
            else:
                timestamp, offset_at = read_varint(data, timestamp_at)
            byte = data[offset_at]
            if byte < 0x80:
                offset = (byte >> 1) ^ -(byte & 1)
                position = offset_at + 1
            else:
                offset, position = read_varint(data, offset_at)
            byte = data[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = read_varint(data, position)
            key = None
            if size >= 0:
                key = data[position : position + size]
                position += size
            has_value = data[position] != _NO_VALUE
            if position >= end or end > total or size < -1 or not 0 <= offset <= _INT32_MAX:
                raise CorruptRecordError(f"the record at byte {start} of a batch does not fit its own length")
            yield _new(RecordSpan, (start, end, timestamp_at, offset_at, timestamp, offset, key, has_value))
            position = end
    except IndexError:
        raise CorruptRecordError(f"a batch ends inside one of its {count} records") from None
    if position != total:
        raise CorruptRecordError(
            f"a batch has {total - position} bytes after the last of its {count} records"
        )


def damage(body: bytes, count: int) -> CorruptRecordError:
    """Return why ``body`` isn't ``count`` records."""
    try:
        for _ in walk(body, count):
            pass
    except CorruptRecordError as error:
        return error
    return CorruptRecordError(f"a number in one of the {count} records of a batch is out of range")


def choose(
    records: Iterable[RecordSpan],
    goes: Callable[[RecordSpan], bool],
    body: bytes,
    base_timestamp: int,
    horizon: int,
    covered: int,
) -> Choice:
    """The records for which ``goes`` is false.

    If a tombstone up to the offset delta ``covered`` is among them, and ``horizon`` isn't negative, their timestamp
    deltas are made to count from it.
    """
    total = keyless = 0
    kept: list[RecordSpan] = []
    has_tombstone = False
    for record in records:
        total += 1
        if goes(record):
            keyless += record.key is None
        else:
            kept.append(record)
            has_tombstone |= not record.has_value and record.offset_delta <= covered
    latest = max([_int64(base_timestamp + record.timestamp_delta) for record in kept], default=INT64_MIN)
    parts: list[bytes] = []
    if has_tombstone and horizon >= 0:
        return Choice(len(kept), keyless, latest, True, moved_body(body, kept, base_timestamp - horizon))
    if len(kept) < total:
        parts = [body[record.start : record.end] for record in kept]
    return Choice(len(kept), keyless, latest, False, b"".join(parts))


def moved_body(data: bytes, records: Iterable[RecordSpan], by: int) -> bytes:
    """Those records of the body ``data`` with ``by`` ms added to their timestamp deltas."""
    return b"".join([_moved(data, record, by) for record in records])


def _moved(data: bytes, record: RecordSpan, by: int) -> bytes:
    delta = encode_varint(_int64(record.timestamp_delta + by))
    length = 1 + len(delta) + record.end - record.offset_at
    attributes = data[record.timestamp_at - 1 : record.timestamp_at]
    return b"".join((encode_varint(length), attributes, delta, data[record.offset_at : record.end]))


def _int64(number: int) -> int:
    """The number as Java's long has it, which wraps around."""
    return (number + 2**63) % 2**64 - 2**63
