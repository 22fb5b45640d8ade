"""Records of a batch that are found by their timestamps, in steps of bounded work."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.records.batch import LOG_APPEND_TIME, MAGIC, BatchHeader, CorruptRecordError
from ottla_protocol.records.scan import FINE, FOUND, INT64_MAX, INT64_MIN, REASONS, TRAILING
from ottla_protocol.records.walk import Place, Walk, body_parts, steps_through, walk

if TYPE_CHECKING:
    from collections.abc import Generator

    from typing_extensions import Buffer


def time_in_batch(header: BatchHeader, offset: int) -> int | None:
    """About when a record of a batch was written, by its header alone; None without timestamps.

    Between a batch's first and largest timestamps, records count as evenly spread.
    """
    if header.max_timestamp < 0:
        return None
    first, delta = header.base_timestamp, header.last_offset_delta
    if header.magic != MAGIC or delta <= 0 or header.attributes & LOG_APPEND_TIME or first < 0:
        return header.max_timestamp
    share = min(1.0, max(0, offset - header.base_offset) / delta)
    return first + int((header.max_timestamp - first) * share)


def find_since(
    batch: Buffer, header: BatchHeader, timestamp: int, start: int
) -> Generator[None, None, Place | None]:
    """Steps to the first record from offset ``start`` on with at least this timestamp: its offset and timestamp.

    Raises CorruptRecordError.
    """
    by_append = bool(header.attributes & LOG_APPEND_TIME)
    if by_append and header.max_timestamp < timestamp:
        return None
    walked = yield from _walk(batch, header, start, INT64_MIN if by_append else timestamp)
    return _found(walked.found(), header)


def find_newest(batch: Buffer, header: BatchHeader, start: int) -> Generator[None, None, Place | None]:
    """Steps to the first record with the largest timestamp from offset ``start`` on. Raises CorruptRecordError."""
    wanted = header.max_timestamp
    if wanted < 0:
        wanted = INT64_MAX  # no record has a timestamp
    elif header.attributes & LOG_APPEND_TIME:
        wanted = INT64_MIN
    walked = yield from _walk(batch, header, start, wanted)
    # Without the record that the header promises, the log starts behind it.
    found = walked.found()
    return _found(walked.newest() if found is None else found, header)


def count_from(batch: Buffer, header: BatchHeader, start: int) -> Generator[None, None, int]:
    """Steps to the number of records from offset ``start`` on. Raises CorruptRecordError."""
    walked = yield from _walk(batch, header, start, INT64_MIN)
    _, record, *_ = walked.result()
    return header.record_count - int(record)


def _found(place: Place | None, header: BatchHeader) -> Place | None:
    if place is None:
        return None
    delta, timestamp = place
    by_append = header.attributes & LOG_APPEND_TIME
    return header.base_offset + delta, header.max_timestamp if by_append else timestamp


def _walk(batch: Buffer, header: BatchHeader, start: int, timestamp: int) -> Generator[None, None, Walk]:
    """Raises CorruptRecordError."""
    since = start - header.base_offset, timestamp
    walked = walk(header.record_count, header.base_timestamp, since=since)
    yield from steps_through(body_parts(batch, header), walked.feed)
    reason, record, *_ = walked.result()
    if reason not in (FINE, FOUND, TRAILING):
        raise CorruptRecordError(f"record {record} of the batch can't be read: {REASONS[reason]}")
    return walked
