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
    from collections.abc import Iterator

    from typing_extensions import Buffer

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
_LZ4_END: Final = bytes(4)
_LZ4_BLOCKS: Final = 16
"""The most blocks of a piece: those of 64 KiB come to a megabyte."""
_LZ4_PIECE: Final = 256 * 1024


class Lz4Frame(NamedTuple):
    """A header that makes liblz4 read the blocks as Java does, and the bytes that must follow their end."""

    flags: int
    header: bytes
    blocks: memoryview
    after: int


def lz4_frame(data: memoryview, *, for_java: bool) -> Lz4Frame:
    """The frame in ``data``, without the size and the checksum of its contents. A broken header stays broken.

    Raises CorruptRecordError, with ``for_java``: no Java client can read the frame.
    """
    head = bytes(data[:_MOST_HEADER])
    flags = head[_FLAGS_AT] if len(head) >= _LEAST_HEADER else 0
    end = _LEAST_HEADER + (8 if flags & _SIZE else 0) + (4 if flags & _DICTIONARY_ID else 0)
    header = head[:end]
    if flags & (_SIZE | _CHECKSUM) and len(header) == end:
        fields = bytes((flags & ~(_SIZE | _CHECKSUM), header[5])) + header[14 if flags & _SIZE else 6 : -1]
        wrong = header[-1] ^ _header_checksum(header[_FLAGS_AT:-1])
        header = header[:_FLAGS_AT] + fields + bytes((_header_checksum(fields) ^ wrong,))
    if for_java and not flags & _INDEPENDENT:
        raise CorruptRecordError("an lz4 frame has dependent blocks, which Java clients can't read")
    if for_java and flags & _DICTIONARY_ID:
        raise CorruptRecordError("an lz4 frame has a dictionary id, which Java clients can't read")
    return Lz4Frame(flags, header, data[end:], 4 if flags & _CHECKSUM else 0)


@lru_cache(1024)
def _header_checksum(fields: bytes) -> int:
    return xxh32(fields) >> 8 & 0xFF


def lz4_pieces(frame: Lz4Frame) -> Iterator[tuple[Buffer, int]]:
    """The blocks in pieces of some of them, each with the number of bytes that must follow the stream's end.

    A block without contents is replaced by the mark that ends the blocks.
    """
    blocks = frame.blocks
    checksum = 4 if frame.flags & _BLOCK_SUMS else 0
    begin = at = count = 0
    size = -1
    while at + 4 <= len(blocks):
        (size,) = _UINT32.unpack_from(blocks, at)
        if size in (0, _RAW) or (size == 1 and at + 4 < len(blocks) and blocks[at + 4] < 16):
            break
        at += 4 + (size & ~_RAW) + checksum
        size = -1
        count += 1
        if count == _LZ4_BLOCKS or at - begin >= _LZ4_PIECE:
            for start in range(begin, min(at, len(blocks)), _LZ4_PIECE):
                yield blocks[start : min(start + _LZ4_PIECE, at)], frame.after
            begin, count = at, 0
    end = at if size in (1, _RAW) else len(blocks)
    for start in range(begin, end, _LZ4_PIECE):
        yield blocks[start : min(start + _LZ4_PIECE, end)], frame.after
    if end == at < len(blocks):
        # Behind a compressed block without contents Java reads nothing more.
        yield _LZ4_END + bytes(blocks[end + 4 :]), 0 if size == 1 else frame.after


# zstd (RFC 8878): frames, one after the other. Java notices that the last one is cut off only if it has read on since
# the frame before it ended.

_ZSTD_BUFFER: Final = 131_075
"""The bytes that zstd-jni reads at once."""
_ZSTD_MAGIC: Final = 0xFD2FB528
_SKIPPABLE_MAGIC: Final = 0x184D2A50
_SKIPPABLE: Final = 0xFFFFFFF0
_MOST_OF_BLOCK: Final = 128 * 1024
_ZSTD_PIECE: Final = 1024 * 1024
_ZSTD_BLOCKS: Final = 32
_MOST_OF_WINDOW: Final = 17 << 3
"""The descriptor of 128 MiB. Java reads a larger window by chance alone: of a frame that ends in one of its reads."""
_UNKNOWN: Final = 256
"""The input at once of what has no frame's header. It expands to 8 MiB at most."""


def zstd_stops(data: memoryview, at: int, *, for_java: bool) -> Iterator[int]:
    """Where to stop in the frame at ``at``: after some blocks, which expand to a megabyte at most, and at its end.

    The last may lie behind the data. A frame:

      at  size  field
       0     4  magic       0xFD2FB528, little-endian
       4     1  descriptor  bits 6-7 size of the size, 5 single segment, 2 checksum, 0-1 size of the dictionary id
                window (1, without single segment), dictionary id (0, 1, 2, 4), size (0 or 1, 2, 4, 8)

    Then blocks: bit 0 the last one, bits 1-2 the kind, the other 21 bits the size; its bytes, but one byte of kind 1
    (repeated). A checksum of four bytes follows. A skippable frame has its size (uint32) behind the magic, then that
    many bytes. Raises CorruptRecordError, with ``for_java``: no Java client can read the frame.
    """
    size = len(data)
    head = bytes(data[at : at + 8]).ljust(8, b"\0")
    magic, length = _UINT32.unpack_from(head)[0], _UINT32.unpack_from(head, 4)[0]
    if magic & _SKIPPABLE == _SKIPPABLE_MAGIC:
        yield at + 8 + length
        return
    if magic != _ZSTD_MAGIC:
        yield from range(at + _UNKNOWN, size + _UNKNOWN, _UNKNOWN)
        return
    descriptor = head[4]
    single = descriptor >> 5 & 1
    kind = descriptor >> 6
    if for_java and not single and head[5] > _MOST_OF_WINDOW:
        raise CorruptRecordError("a zstd frame has a window above 128 MiB, which Java clients can't read")
    at += 5 + (not single) + (0, 1, 2, 4)[descriptor & 3] + ((single, 2, 4, 8)[kind])
    blocks = expanded = 0
    while at + 3 <= size:
        block = data[at] | data[at + 1] << 8 | data[at + 2] << 16
        kind = block >> 1 & 3
        at += 3 + (1 if kind == 1 else block >> 3)
        if block & 1:
            yield at + (4 if descriptor & 4 else 0)
            return
        expanded += _MOST_OF_BLOCK if kind == 2 else block >> 3
        blocks += 1
        if blocks == _ZSTD_BLOCKS or expanded > _ZSTD_PIECE - _MOST_OF_BLOCK:
            yield at
            blocks = expanded = 0
    yield size


def zstd_is_over(data: memoryview, end: int) -> bool:
    """Whether Java takes ``data`` for complete though the frame at ``end`` is cut off: one ended in the same buffer."""
    return end > 0 and (end - 1) // _ZSTD_BUFFER == (len(data) - 1) // _ZSTD_BUFFER
