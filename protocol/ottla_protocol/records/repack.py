"""Writes a batch's body again: with offset deltas 0, 1, 2 …, or in another compression."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ottla_protocol.records.batch import CODEC_MASK, HEADER_SIZE, LOG_OVERHEAD, write_crc, write_header
from ottla_protocol.records.compression import compress
from ottla_protocol.records.record import encode_varint
from ottla_protocol.records.scan import read_number

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from ottla_protocol.records.batch import BatchHeader


def renumber(body: bytes, count: int) -> bytes:
    """The ``count`` records in ``body``, which a scan has found fine, with their numbers as offset deltas."""
    parts: list[bytes] = []
    start = 0
    for index in range(count):
        length, begin = read_number(body, start, len(body))
        start = begin + length
        _, stamp_end = read_number(body, begin + 1, start, 10)
        _, rest = read_number(body, stamp_end, start)
        delta = encode_varint(index)
        size = stamp_end - begin + len(delta) + start - rest
        parts += (encode_varint(size), body[begin:stamp_end], delta, body[rest:start])
    return b"".join(parts)


def pack(
    header: BatchHeader, body: Buffer, codec: int, level: int | None = None, *, max_timestamp: int
) -> tuple[bytearray, BatchHeader]:
    """A batch with the header's fields and the uncompressed ``body``, and its own header.

    Raises LocalProtocolError for an unknown codec or level.
    """
    packed = compress(codec, body, level) if codec else memoryview(body)
    batch = bytearray(HEADER_SIZE)
    batch += packed
    header = header._replace(
        batch_length=len(batch) - LOG_OVERHEAD,
        attributes=header.attributes & ~CODEC_MASK | codec,
        max_timestamp=max_timestamp,
    )
    write_header(batch, 0, header)
    return batch, header._replace(crc=write_crc(batch, 0, len(batch)))
