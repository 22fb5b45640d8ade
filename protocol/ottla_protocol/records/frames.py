"""The frames around compressed records, as Kafka's Java clients read them.

The codecs' libraries and Java's readers differ in what a header may say and where a stream ends. ``compression`` reads
as Java does, by the rules below. It also reads two kinds of LZ4 frames that Java doesn't, because logs may have them:
with dependent blocks, or a dictionary id. Producers may not send these.

Only headers are read here, never a record. ``tests/records/golden/frames.tsv`` lists some hundred frames with what
Kafka says of each.
"""

from __future__ import annotations

import re
from functools import lru_cache
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple
from zlib import crc32

from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.xxh32 import xxh32

if TYPE_CHECKING:
    from collections.abc import Generator

# gzip (RFC 1952). The header of a member:
#
#   at  size  field
#    0     2  magic    0x1f8b
#    2     1  method   8, deflate
#    3     1  flags    2 header checksum, 4 extra field, 8 name, 16 comment; Java ignores the others
#    4     6  time, level, system
#          .  extra field, after its size (uint16, little-endian); name and comment, each with a zero byte after it
#          2  checksum: the low half of the CRC-32 of everything before it

_GZIP_START: Final = b"\x1f\x8b\x08"
_GZIP_HEADER: Final = 10
_HEADER_CRC, _EXTRA, _NAME, _COMMENT = 2, 4, 8, 16
_ZERO: Final = re.compile(rb"\0")
_GZIP_BUFFER: Final = 8 * 1024
"""The bytes that Kafka's GZIPInputStream reads at once."""
_GZIP_LEAST_MORE: Final = 19
"""So many bytes after a member, if they are in the same buffer, may be another one. Java ignores fewer."""


def gzip_deflated_at(data: memoryview, at: int) -> int:
    """Where the deflated data of the member at ``at`` begin. Raises CorruptRecordError."""
    start = bytes(data[at : at + _GZIP_HEADER])
    if not start.startswith(_GZIP_START):
        raise CorruptRecordError("record batch holds broken gzip data: there is no gzip header")
    flags = start[3] if len(start) == _GZIP_HEADER else 0
    position = at + _GZIP_HEADER
    if flags & _EXTRA:
        position += 2 + int.from_bytes(data[position : position + 2], "little")
    for flag in (_NAME, _COMMENT):
        if flags & flag:
            zero = _ZERO.search(data, position)
            position = zero.end() if zero else len(data) + 1
    if flags & _HEADER_CRC:
        if int.from_bytes(data[position : position + 2], "little") != crc32(data[at:position]) & 0xFFFF:
            raise CorruptRecordError("record batch holds broken gzip data: a header's checksum is wrong")
        position += 2
    if position > len(data):
        raise CorruptRecordError("record batch holds broken gzip data: a header is cut off")
    return position


def gzip_following(data: memoryview, first: int, end: int) -> int | None:
    """Where the deflated data of the next member begin; None if none follows the one that ended at ``end``.

    ``first`` is where the deflated data of the first member begin: there Java's buffers begin.
    """
    left = len(data) - end
    same_buffer = (end - 9 - first) // _GZIP_BUFFER == (len(data) - 1 - first) // _GZIP_BUFFER
    if not left or (left < _GZIP_LEAST_MORE and same_buffer):
        return None
    try:
        return gzip_deflated_at(data, end)
    except CorruptRecordError:
        return None


# lz4 (its frame format). The header:
#
#   at  size  field
#    0     4  magic       0x184D2204, little-endian
#    4     1  flags       bits 6-7 version 1, 5 independent blocks, 4 block checksums, 3 size, 2 checksum,
#                         0 dictionary id
#    5     1  block size  bits 4-6: 4 to 7
#    6     8  size        with its flag
#          4  dictionary  with its flag
#          1  checksum    the second byte of the XXH32 of flags, block size, size and dictionary id
#
# Then blocks: size uint32, bit 31 if it is not compressed; data; checksum uint32, with its flag. A size of 0 ends them,
# and the contents' checksum follows. Java skips size and checksum of the contents without a look.
# To Java a block without contents ends the stream, too.

_FLAGS_AT: Final = 4
_LEAST_HEADER: Final = 7
_MOST_HEADER: Final = 19
_INDEPENDENT, _BLOCK_SUMS, _SIZE, _CHECKSUM, _DICTIONARY_ID = 0x20, 0x10, 0x08, 0x04, 0x01
_RAW: Final = 1 << 31
_UINT32: Final = Struct("<I")
_BLOCKS_A_STEP: Final = 16


class Lz4Frame(NamedTuple):
    """A header that makes liblz4 read the blocks as Java does, and the bytes that must follow their end."""

    flags: int
    header: bytes
    blocks: memoryview
    after: int


def lz4_frame(data: memoryview) -> Lz4Frame:
    """The frame in ``data``, without the size and the checksum of its contents. A broken header stays broken."""
    head = bytes(data[:_MOST_HEADER])
    flags = head[_FLAGS_AT] if len(head) >= _LEAST_HEADER else 0
    end = _LEAST_HEADER + (8 if flags & _SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    header = head[:end]
    if flags & (_SIZE | _CHECKSUM) and len(header) == end:
        fields = bytes((flags & ~(_SIZE | _CHECKSUM), header[5])) + header[14 if flags & _SIZE else 6 : -1]
        wrong = header[-1] ^ _header_checksum(header[_FLAGS_AT:-1])
        header = header[:_FLAGS_AT] + fields + bytes((_header_checksum(fields) ^ wrong,))
    return Lz4Frame(flags, header, data[end:], 4 if flags & _CHECKSUM else 0)


@lru_cache(1024)
def _header_checksum(fields: bytes) -> int:
    return xxh32(fields) >> 8 & 0xFF


def lz4_end(frame: Lz4Frame, *, for_java: bool) -> Generator[bytes, None, int | None]:
    """Where in the blocks one without contents ends the stream; None if none does.

    Yields nothing now and then, because a frame may have very many blocks. Raises CorruptRecordError, with
    ``for_java``: no Java client can read the frame.
    """
    if for_java and not frame.flags & _INDEPENDENT:
        raise CorruptRecordError("an lz4 frame has dependent blocks, which Java clients can't read")
    if for_java and frame.flags & _DICTIONARY_ID:
        raise CorruptRecordError("an lz4 frame has a dictionary id, which Java clients can't read")
    blocks = frame.blocks
    checksum = 4 if frame.flags & _BLOCK_SUMS else 0
    at = count = 0
    while at + 4 <= len(blocks):
        (size,) = _UINT32.unpack_from(blocks, at)
        if size in (0, _RAW):
            return at if size else None
        if size == 1 and at + 4 < len(blocks) and blocks[at + 4] < 16:
            return at
        at += 4 + (size & ~_RAW) + checksum
        count += 1
        if not count % _BLOCKS_A_STEP:
            yield b""
    return None


# zstd (RFC 8878): frames, one after the other. Java notices that the last one is cut off only if it has read on since
# the frame before it ended.

_ZSTD_BUFFER: Final = 131_075
"""The bytes that zstd-jni reads at once."""


def zstd_is_over(data: memoryview, end: int) -> bool:
    """Whether Java takes ``data`` for complete though the frame at ``end`` is cut off: one ended in the same buffer."""
    return end > 0 and (end - 1) // _ZSTD_BUFFER == (len(data) - 1) // _ZSTD_BUFFER
