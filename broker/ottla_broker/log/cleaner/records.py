"""A batch's records as compaction sees them, in Python: what each one's key is, whether it has a value, and what stays.

A record that stays is copied byte by byte.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Final, NamedTuple

from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.record import encode_varint
from ottla_protocol.records.scan import NUMBER, REASONS, RecordSpan, WrongRecordError, read_record

INT64_MIN: Final = -(2**63)


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


def walk(data: bytes, count: int) -> Iterator[RecordSpan]:
    """The ``count`` records in ``data``, the uncompressed bytes after a batch's header.

    Raises CorruptRecordError unless the bytes are exactly that many records.
    """
    at, total = 0, len(data)
    for number in range(count):
        try:
            record = read_record(data, at, total)
            if record.offset_delta < 0:
                raise WrongRecordError(NUMBER)
        except WrongRecordError as wrong:
            raise CorruptRecordError(
                f"record {number} of {count} of a batch can't be read: {REASONS[wrong.reason]}"
            ) from None
        yield record
        at = record.end
    if at != total:
        raise CorruptRecordError(f"a batch has {total - at} bytes after the last of its {count} records")


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
