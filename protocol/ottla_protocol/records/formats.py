"""Batches of any format: chooses between record batches (2) and message sets (0 and 1) by the magic byte.

Code on a hot path that meets format 2 only, such as a produce request's, uses ``batch`` itself.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from ottla_protocol.records.batch import (
    LOG_OVERHEAD,
    BatchHeader,
    UnsupportedMagicError,
    crc_is_valid,
    read_header,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla_protocol.records.record import Record

CURRENT_MAGIC = 2
_MAGIC_AT = 16


def read_any_header(buf: Buffer, position: int = 0) -> BatchHeader:
    """Read the header of the batch, or of the message of an old format, at ``position``.

    See ``read_header`` and ``read_message`` for what the fields mean; ``magic`` tells the formats apart.

    Raises UnsupportedMagicError for an unknown format, CorruptRecordError for a header that is cut off or impossible.
    """
    try:
        return read_header(buf, position)
    except UnsupportedMagicError as error:
        if error.magic not in (0, 1):
            raise
    from ottla_protocol.records.message_set import read_message

    return read_message(buf, position)


def iter_any_headers(buf: Buffer) -> Iterator[tuple[int, BatchHeader]]:
    """Yield the position and header of each complete batch, or message of an old format, in ``buf``.

    Raises CorruptRecordError where the bytes can't be the start of one.
    """
    view = memoryview(buf)
    position = 0
    # Any header reaches beyond the magic byte.
    while position + _MAGIC_AT < view.nbytes:
        size = int.from_bytes(view[position + 8 : position + LOG_OVERHEAD], "big", signed=True) + LOG_OVERHEAD
        if size > LOG_OVERHEAD and position + size > view.nbytes:
            return
        yield position, read_any_header(view, position)
        position += size


def is_intact(buf: Buffer, position: int, header: BatchHeader) -> bool:
    """Whether the batch or message is complete and matches its checksum."""
    if header.magic == CURRENT_MAGIC:
        return crc_is_valid(buf, position, header)
    from ottla_protocol.records.message_set import message_crc_is_valid

    return message_crc_is_valid(buf, position, header)


def decode_any(
    buf: Buffer, position: int, header: BatchHeader, *, max_bytes: int | None = None
) -> list[Record]:
    """Decode the records of the batch or message at ``position``, whose header was read before.

    Raises CorruptRecordError for one that is incomplete or breaks its format.
    """
    if header.magic == CURRENT_MAGIC:
        from ottla_protocol.records.record import decode_records

        return decode_records(buf, position, header, max_bytes=max_bytes)
    from ottla_protocol.records.message_set import decode_message_records

    return decode_message_records(buf, position, header, max_bytes=max_bytes)
