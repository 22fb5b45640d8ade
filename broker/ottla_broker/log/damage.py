"""Finds what is intact in a segment file, also behind damage.

A broker's recovery ends at the first damaged batch. This search goes on: behind the damage it looks for the next whole
batch of format 2 with the right checksum, offsets that fit, and nothing else to go by.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from ottla_broker.log.index import MAX_RELATIVE
from ottla_broker.log.segment import LogSegment
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_AT,
    BatchHeader,
    CorruptRecordError,
    read_header,
)
from ottla_protocol.records.formats import is_intact

_MAGIC: Final = bytes((MAGIC,))
_WINDOW: Final = 1 << 20


class Stretch(NamedTuple):
    """Bytes of a segment that are all intact batches, or none.

    Attributes:
        first_offset, next_offset: of an intact stretch, its first offset and the one after its last; of a damaged one,
            the offset that was next, twice.
        batches: how many; 0 in a damaged stretch.
        problem: what is wrong; empty for an intact stretch, and for zeros up to the file's end.
    """

    position: int
    size: int
    first_offset: int
    next_offset: int
    batches: int
    problem: str

    @property
    def is_intact(self) -> bool:
        return self.batches > 0

    @property
    def end(self) -> int:
        return self.position + self.size


def stretches(segment: LogSegment, end_offset: int | None = None) -> Iterator[Stretch]:
    """Divide a segment into stretches, which touch each other from the file's begin to its end.

    ``end_offset`` is where the next segment begins; offsets are outside the checksum. Raises OSError.
    """
    if end_offset is None:
        end_offset = segment.base_offset + MAX_RELATIVE + 1
    position, next_offset = 0, segment.base_offset
    while position < segment.size:
        intact, problem = _intact_from(segment, position, next_offset, end_offset)
        if intact is not None:
            yield intact
            position, next_offset = intact.end, intact.next_offset
        if position >= segment.size:
            return
        end = _next_intact(segment, position, next_offset, end_offset)
        if end is None:
            end = segment.size
            if _is_zero(segment, position):
                problem = ""
        yield Stretch(position, end - position, next_offset, next_offset, 0, problem)
        position = end


def _intact_from(
    segment: LogSegment, start: int, next_offset: int, end_offset: int
) -> tuple[Stretch | None, str]:
    """The intact batches from ``start`` on, and what ends them."""
    first, count, problem, end = next_offset, 0, "", start
    try:
        for position, header, batch in segment.batches(start):
            problem = _problem(header, batch, next_offset, end_offset)
            if problem:
                break
            if not count:
                first = header.base_offset
            count += 1
            end = position + header.size
            next_offset = header.last_offset + 1
    except CorruptRecordError as error:
        problem = f"no batch can be read here: {error}"
    if not count:
        return None, problem
    return Stretch(start, end - start, first, next_offset, count, ""), problem


def _problem(header: BatchHeader, batch: memoryview, next_offset: int, end_offset: int) -> str:
    if not is_intact(batch, 0, header):
        return "the checksum of a batch does not match its bytes"
    last = header.last_offset
    if header.base_offset < next_offset or last < header.base_offset:
        return f"a batch of offsets {header.base_offset} to {last} where {next_offset} is next"
    if last >= end_offset:
        return f"a batch of offsets {header.base_offset} to {last} where the segment ends before {end_offset}"
    return ""


def _next_intact(segment: LogSegment, damaged: int, next_offset: int, end_offset: int) -> int | None:
    """The position of the first intact batch behind the damage at ``damaged``; None if there is none."""
    # Most often only the bytes of one batch are damaged, and its length still leads to the next one.
    size = int.from_bytes(segment.file.read(damaged + 8, 4), "big", signed=True) + LOG_OVERHEAD
    if size > LOG_OVERHEAD and _is_batch_at(segment, damaged + size, next_offset, end_offset):
        return damaged + size
    position = damaged + 1
    while position + HEADER_SIZE <= segment.size:
        window = segment.file.read(position + MAGIC_AT, _WINDOW)
        at = window.find(_MAGIC)
        while at >= 0:
            if _is_batch_at(segment, position + at, next_offset, end_offset):
                return position + at
            at = window.find(_MAGIC, at + 1)
        position += max(1, len(window))
    return None


def _is_batch_at(segment: LogSegment, position: int, next_offset: int, end_offset: int) -> bool:
    head = segment.file.read(position, HEADER_SIZE)
    if len(head) < HEADER_SIZE:
        return False
    # The cheap checks first: every 256th byte looks like the magic one.
    offset, size = (
        int.from_bytes(head[:8], "big", signed=True),
        int.from_bytes(head[8:12], "big", signed=True),
    )
    size += LOG_OVERHEAD
    if not next_offset <= offset < end_offset:
        return False
    if not HEADER_SIZE <= size <= segment.size - position:
        return False
    try:
        header = read_header(head)
    except CorruptRecordError:
        return False
    batch = memoryview(segment.file.read(position, size))
    return not _problem(header, batch, next_offset, end_offset)


def _is_zero(segment: LogSegment, position: int) -> bool:
    while position < segment.size:
        data = segment.file.read(position, _WINDOW)
        if not data or data.count(0) != len(data):
            return False
        position += len(data)
    return True
