"""The part of a log's slice that a share fetch sends: whole batches, which stay in the file where they are large.

Only batches' headers are read to find them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import (
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC_AT,
    BatchHeader,
    CorruptRecordError,
)
from ottla_protocol.records.formats import read_any_header

if TYPE_CHECKING:
    from ottla_broker.coordinator.share.key_order import Ranges
    from ottla_broker.log.files import FileSlice

_WINDOW: Final = 16 * 1024
"""Bytes that are read at a time to find headers."""
COPIED: Final = 4096
"""Smaller pieces are read into memory: each one that stays in the file costs a call to send it."""


class Fetched:
    """Whole batches, one after the other.

    Attributes:
        parts: slices of files and bytes, in the order in which they are sent.
        copied: how many of the bytes are in memory.
    """

    __slots__ = ("_size", "copied", "parts")

    def __init__(self, parts: Sequence[FileSlice | bytes]) -> None:
        self.parts = parts
        self._size = sum(map(len, parts))
        self.copied = sum(len(part) for part in parts if isinstance(part, bytes))

    def __len__(self) -> int:
        return self._size


def find_batches(found: FileSlice, last_offset: int, most: int) -> list[tuple[int, BatchHeader]]:
    """A slice's batches with their positions, up to the one with ``last_offset``, ``most`` at most.

    The last one of a slice may be cut off; it is left out. Raises KafkaError: CORRUPT_MESSAGE.
    """
    headers: list[tuple[int, BatchHeader]] = []
    end, position = len(found), 0
    window, start = b"", 0
    try:
        while position + MAGIC_AT < end and len(headers) < most:
            at = position - start
            if at + HEADER_SIZE > len(window) and start + len(window) < end:
                start, at = position, 0
                window = found.read_at(position, min(_WINDOW, end - position))
                if len(window) <= MAGIC_AT:
                    break
            size = int.from_bytes(window[at + 8 : at + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
            if size > LOG_OVERHEAD and position + size > end:
                break
            header = read_any_header(window, at)
            headers.append((position, header))
            if header.last_offset >= last_offset:
                break
            position += size
    except (CorruptRecordError, OSError) as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    return headers


def batches_with(found: FileSlice, headers: Sequence[tuple[int, BatchHeader]], ranges: Ranges) -> Fetched:
    """The batches that hold any of these offsets. Raises KafkaError: CORRUPT_MESSAGE."""
    pieces: list[tuple[int, int]] = []
    at = 0
    for position, header in headers:
        while at < len(ranges) and ranges[at][1] < header.base_offset:
            at += 1
        if at == len(ranges):
            break
        if ranges[at][0] > header.last_offset:
            continue
        end = position + header.size
        if pieces and pieces[-1][1] == position:
            pieces[-1] = pieces[-1][0], end
        else:
            pieces.append((position, end))
    parts: list[FileSlice | bytes] = []
    copied: list[bytes] = []
    try:
        for position, end in pieces:
            size = end - position
            if size < COPIED:
                copied.append(found.read_at(position, size))
                continue
            if copied:
                parts.append(b"".join(copied))
                copied = []
            parts.append(found.part(position, size))
    except OSError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, str(error)) from error
    if copied:
        parts.append(b"".join(copied))
    return Fetched(parts)


def spread(parts: list[Any]) -> list[Any]:
    """A response's parts, with what was fetched in parts of its own."""
    return [each for part in parts for each in (part.parts if isinstance(part, Fetched) else (part,))]
