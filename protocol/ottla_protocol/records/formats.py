"""Batches of any format: chooses between record batches (2) and message sets (0 and 1) by the magic byte.

Code on a hot path that meets format 2 only, such as a produce request's, uses ``batch`` itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, TypeAlias

from ottla_protocol.records.batch import LOG_OVERHEAD, MAGIC, MAGIC_AT, BatchHeader, crc_is_valid, read_header

if TYPE_CHECKING:
    from types import ModuleType

    from ottla_protocol.records.record import Record

Octets: TypeAlias = "bytes | bytearray | memoryview"


@cache
def _message_set() -> ModuleType:
    """Import the old formats' module when the first message of one is met: most brokers never meet any."""
    from ottla_protocol.records import message_set

    return message_set


def read_any_header(buf: Octets, position: int = 0) -> BatchHeader:
    """Read the header of the batch, or of the message of an old format, at ``position``.

    See ``read_header`` and ``read_message`` for what the fields mean; ``magic`` tells the formats apart.

    Raises UnsupportedMagicError for an unknown format, CorruptRecordError for a header that is cut off or impossible.
    """
    if position + MAGIC_AT < len(buf) and buf[position + MAGIC_AT] < MAGIC:
        header: BatchHeader = _message_set().read_message(buf, position)
        return header
    return read_header(buf, position)


def iter_headers(buf: Octets) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch, or message of an old format, in ``buf``.

    Raises CorruptRecordError where the bytes can't be the start of one.
    """
    position = 0
    # Any header reaches beyond the magic byte.
    while position + MAGIC_AT < len(buf):
        size = int.from_bytes(buf[position + 8 : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if size > LOG_OVERHEAD and position + size > len(buf):
            return
        yield position, read_any_header(buf, position)
        position += size


def is_intact(buf: Octets, position: int, header: BatchHeader) -> bool:
    """Whether the batch or message is complete and matches its checksum."""
    if header.magic == MAGIC:
        return crc_is_valid(buf, position, header)
    intact: bool = _message_set().message_crc_is_valid(buf, position, header)
    return intact


def decode_any(
    buf: Octets, position: int, header: BatchHeader, *, max_bytes: int | None = None
) -> list[Record]:
    """Decode the records of the batch or message at ``position``, whose header was read before.

    Raises CorruptRecordError for one that is incomplete or breaks its format.
    """
    if header.magic == MAGIC:
        from ottla_protocol.records.record import decode_records

        return decode_records(buf, position, header, max_bytes=max_bytes)
    records: list[Record] = _message_set().decode_message_records(buf, position, header, max_bytes=max_bytes)
    return records
