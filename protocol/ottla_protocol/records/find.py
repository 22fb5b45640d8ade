"""Finds a record of a batch by its timestamp, without making objects of the others.

Some kilobytes can decompress to millions of records. So the body is scanned in windows, and the steps yield between
them; never is more in memory than a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from ottla_protocol.records.batch import (
    CODEC_MASK,
    HEADER_SIZE,
    LOG_APPEND_TIME,
    MAGIC,
    BatchHeader,
    CorruptRecordError,
)
from ottla_protocol.records.compression import decompress_parts
from ottla_protocol.records.scan import (
    CUT,
    FINE,
    INT64_MAX,
    REASONS,
    TRAILING,
    Scan,
    WrongRecordError,
    read_number,
    scan,
)
from ottla_protocol.records.scan_stream import joined

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from typing_extensions import Buffer

WINDOW_BYTES: Final = 8 * 1024
"""Of a body that are scanned between two steps; more only if one record is longer."""

Place = tuple[int, int]
"""A record's offset and timestamp."""


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


class _Window(NamedTuple):
    """Whole records: so many of them in ``body`` from ``start`` on, and what their scan has found."""

    body: bytes
    start: int
    records: int
    found: Scan


def find_since(
    batch: Buffer, header: BatchHeader, timestamp: int, start: int
) -> Generator[None, None, Place | None]:
    """Steps to the first record from offset ``start`` on with at least this timestamp. Raises CorruptRecordError."""
    by_append = bool(header.attributes & LOG_APPEND_TIME)
    if by_append and header.max_timestamp < timestamp:
        return None
    base, first = header.base_offset, start - header.base_offset
    # A scan counts later records as out of range, but never those without a timestamp (-1).
    every = by_append or timestamp < 0
    for window in _windows(batch, header, INT64_MAX if every else timestamp - 1):
        if (every or window.found.out_of_range) and not _is_before(window, first):
            for delta, stamp in _records(window, header):
                if delta >= first and (by_append or stamp >= timestamp):
                    return base + delta, header.max_timestamp if by_append else stamp
        yield
    return None


def find_newest(batch: Buffer, header: BatchHeader, start: int) -> Generator[None, None, Place | None]:
    """Steps to the first record with the largest timestamp from offset ``start`` on. Raises CorruptRecordError."""
    if header.max_timestamp >= 0:
        found = yield from find_since(batch, header, header.max_timestamp, start)
        if found is not None:
            return found
    # The log starts behind that record, or no record has a timestamp.
    base, first = header.base_offset, start - header.base_offset
    best: Place | None = None
    for window in _windows(batch, header, INT64_MAX):
        if not _is_before(window, first) and (best is None or window.found.max_timestamp > best[1]):
            for delta, stamp in _records(window, header):
                if delta >= first and (best is None or stamp > best[1]):
                    best = base + delta, stamp
        yield
    return best


def _windows(batch: Buffer, header: BatchHeader, latest: int) -> Iterator[_Window]:
    """Raises CorruptRecordError."""
    codec = header.attributes & CODEC_MASK
    data = memoryview(batch)[HEADER_SIZE:]
    parts = joined(decompress_parts(codec, data)) if codec else iter((bytes(data),))
    body = b""
    at = index = 0
    size = WINDOW_BYTES
    while index < header.record_count:
        end = min(at + size, len(body))
        if end > at:
            found = scan(
                body, at, end, header.record_count - index, header.base_timestamp, first=index, latest=latest
            )
            if found.reason not in (FINE, CUT, TRAILING):
                raise _corrupt(found.record, found.reason)
            if found.record > index:
                yield _Window(body, at, found.record - index, found)
                at, index, size = found.position, found.record, WINDOW_BYTES
                continue
            if end < len(body):
                size *= 2
                continue
        part = next(parts, None)
        if part is None:
            raise _corrupt(index, CUT)
        body, at = body[at:] + part, 0


def _corrupt(record: int, reason: int) -> CorruptRecordError:
    return CorruptRecordError(f"record {record} of the batch can't be read: {REASONS[reason]}")


def _is_before(window: _Window, first: int) -> bool:
    """Whether all of a window's records have offset deltas below ``first``, as far as that is known."""
    return not window.found.renumber and window.found.record <= first


def _records(window: _Window, header: BatchHeader) -> Iterator[Place]:
    """Offset deltas and timestamps. Raises CorruptRecordError."""
    body, at = window.body, window.start
    try:
        for _ in range(window.records):
            length, at = read_number(body, at, len(body))
            stamp, after = read_number(body, at + 1, len(body), 10)
            delta, _after = read_number(body, after, len(body))
            yield delta, header.base_timestamp + stamp
            at += length
    except WrongRecordError as wrong:
        raise _corrupt(window.found.record, wrong.reason) from wrong
