"""A batch's records as compaction sees them: where each begins and ends, its key, and whether it has a value.

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

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla_protocol.records.batch import CorruptRecordError

_LONGEST_VARINT_SHIFT: Final = 63
# The value length -1 in zigzag.
_NO_VALUE: Final = 1
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
                end = position + 1 + (byte >> 1)
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
            if position >= end or end > total or size < -1 or offset < 0:
                raise CorruptRecordError(f"the record at byte {start} of a batch does not fit its own length")
            yield _new(RecordSpan, (start, end, timestamp_at, offset_at, timestamp, offset, key, has_value))
            position = end
    except IndexError:
        raise CorruptRecordError(f"a batch ends inside one of its {count} records") from None
    if position != total:
        raise CorruptRecordError(
            f"a batch has {total - position} bytes after the last of its {count} records"
        )
