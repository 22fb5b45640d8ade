"""The codecs of record batches: gzip, snappy, lz4 and zstd, as Kafka's Java clients write them.

Each library is imported on first use, because a broker that passes batches on never needs it. Decompression stops at
``max_bytes``, and never allocates memory for a claimed length that the input doesn't justify.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from struct import Struct
from struct import error as StructError
from typing import TYPE_CHECKING, Any, Protocol

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.frames import (
    gzip_deflated_at,
    gzip_following,
    lz4_frame,
    lz4_pieces,
    zstd_is_over,
    zstd_stops,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

NONE = 0
GZIP = 1
SNAPPY = 2
LZ4 = 3
ZSTD = 4

# Indexed by the codec's number; also the values of Kafka's config compression.type.
CODEC_NAMES = ("none", "gzip", "snappy", "lz4", "zstd")

# The levels that Kafka's compression.<codec>.level accepts (KIP-390): least, greatest, default. gzip's -1 is
# zlib's own default and lies outside the range; snappy has no levels.
LEVELS: dict[int, tuple[int, int, int]] = {GZIP: (1, 9, -1), LZ4: (1, 17, 9), ZSTD: (-131072, 22, 3)}

DEFAULT_MAX_BYTES = 256 * 1024 * 1024
"""The default limit of a batch's decompressed size."""


class DecompressedTooLargeError(CorruptRecordError):
    """A batch exceeds the caller's limit of its decompressed size."""

    def __init__(self, max_bytes: int) -> None:
        super().__init__(f"record batch decompresses to more than {max_bytes} bytes")
        self.max_bytes = max_bytes


def check_level(codec: int, level: int) -> None:
    """Raise LocalProtocolError unless Kafka accepts ``level`` for ``codec``."""
    if codec not in LEVELS:
        raise LocalProtocolError(f"{_name(codec)} has no compression levels, {level} was asked for")
    least, greatest, default = LEVELS[codec]
    if not least <= level <= greatest and level != default:
        otherwise = "" if least <= default <= greatest else f" or {default}"
        raise LocalProtocolError(
            f"{_name(codec)} has the levels {least} to {greatest}{otherwise}, {level} was asked for"
        )


def compress(codec: int, data: Buffer, level: int | None = None) -> bytes:
    """Compress ``data`` as one stream.

    Raises LocalProtocolError for an unknown codec or level.
    """
    if level is not None:
        check_level(codec, level)
    compressor = _COMPRESSORS.get(codec)
    if compressor is None:
        raise LocalProtocolError(f"there is no compression codec {codec}")
    return compressor(data, level)


def decompress(codec: int, data: Buffer, max_bytes: int | None = None) -> bytes:
    """Decompress ``data``, to at most ``max_bytes`` (256 MiB by default).

    Raises DecompressedTooLargeError above the limit, CorruptRecordError for invalid or truncated data.
    """
    parts = list(decompress_parts(codec, data, max_bytes))
    return parts[0] if len(parts) == 1 else b"".join(parts)


def decompress_parts(
    codec: int, data: Buffer, max_bytes: int | None = None, *, for_java: bool = False
) -> Iterator[bytes]:
    """Decompress ``data`` part by part, so that the whole need not be in memory.

    A part has up to a megabyte, but a block of snappy is one part. It may be empty, and a part of few bytes is never
    much work: one gzip member or snappy block, or some blocks of lz4 or zstd. ``for_java`` refuses what no Java client
    reads. Raises as :func:`decompress`, maybe after some parts.
    """
    decompressor = _DECOMPRESSORS.get(codec)
    if decompressor is None:
        raise CorruptRecordError(f"record batch is compressed with codec {codec}, which is not assigned")
    return decompressor(memoryview(data), DEFAULT_MAX_BYTES if max_bytes is None else max_bytes, for_java)


class Compressor(Protocol):
    """Compresses data that come part by part."""

    def compress(self, data: bytes, /) -> bytes: ...
    def flush(self) -> bytes: ...


def compressor(codec: int, level: int | None = None) -> tuple[bytes, Compressor]:
    """How the stream begins, and what compresses its parts.

    Raises LocalProtocolError for an unknown codec or level.
    """
    if level is not None:
        check_level(codec, level)
    if codec == GZIP:
        import zlib

        return b"", zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
    if codec == LZ4:
        import lz4.frame  # type: ignore[import-untyped]

        frame: Any = lz4.frame.LZ4FrameCompressor(**_lz4_options(level))
        return frame.begin(), frame
    if codec == ZSTD:
        import zstandard

        context = zstandard.ZstdCompressor(level=LEVELS[ZSTD][2] if level is None else level)
        return b"", context.compressobj()
    if codec == SNAPPY:
        return _XERIAL_HEADER, _SnappyCompressor()
    if codec == NONE:
        return b"", _NoCompressor()
    raise LocalProtocolError(f"there is no compression codec {codec}")


def _name(codec: int) -> str:
    return CODEC_NAMES[codec] if 0 <= codec < len(CODEC_NAMES) else f"codec {codec}"


def _corrupt(codec: int, why: object) -> CorruptRecordError:
    return CorruptRecordError(f"record batch holds broken {_name(codec)} data: {why}")


# none


def _copy(data: Buffer, level: int | None) -> bytes:
    return bytes(data)


class _NoCompressor:
    def compress(self, data: bytes, /) -> bytes:
        return data

    def flush(self) -> bytes:
        return b""


def _bounded_copy(data: memoryview, max_bytes: int, for_java: bool) -> Iterator[bytes]:
    if data.nbytes > max_bytes:
        raise DecompressedTooLargeError(max_bytes)
    yield bytes(data)


# The libraries for gzip and lz4 copy the input that they haven't used yet, and lz4's allocates the limit of its output:
# so both are limited in each call.
_INPUT_PIECE = 256 * 1024
_OUTPUT_PIECE = 1024 * 1024
_FIRST_INPUT = 512
"""For a member behind the first, because there may be very many: the library copies what it doesn't need."""


# gzip: consecutive RFC 1952 members. What follows the last one is ignored where Java ignores it.

_GZIP_WINDOW = 31
_RAW_DEFLATE = -15
_GZIP_TRAILER = Struct("<II")


def _compress_gzip(data: Buffer, level: int | None) -> bytes:
    import zlib

    return zlib.compress(data, -1 if level is None else level, _GZIP_WINDOW)


def _decompress_gzip(data: memoryview, max_bytes: int, for_java: bool) -> Iterator[bytes]:
    import zlib

    room = max_bytes
    first = position = gzip_deflated_at(data, 0)
    piece = _INPUT_PIECE
    while True:
        member = zlib.decompressobj(_RAW_DEFLATE)
        rest: Buffer = b""
        size = crc = 0
        while not member.eof:
            if not rest:
                rest = data[position : position + piece]
                position += len(rest)
                piece = min(2 * piece, _INPUT_PIECE)
                if not rest:
                    raise _corrupt(GZIP, "the stream is cut off")
            try:
                # One byte above the limit distinguishes "too large" from "just fits".
                part = member.decompress(rest, min(_OUTPUT_PIECE, room + 1))
            except zlib.error as error:
                raise _corrupt(GZIP, error) from None
            rest = member.unconsumed_tail
            size += len(part)
            room -= len(part)
            if room < 0:
                raise DecompressedTooLargeError(max_bytes)
            crc = zlib.crc32(part, crc)
            yield part
        position -= len(member.unused_data)
        trailer = data[position : position + _GZIP_TRAILER.size]
        if trailer != _GZIP_TRAILER.pack(crc, size & 0xFFFFFFFF):
            raise _corrupt(GZIP, "a member's checksum or size is wrong, or cut off")
        position += _GZIP_TRAILER.size
        following = gzip_following(data, first, position)
        if following is None:
            return
        position = following
        piece = _FIRST_INPUT


# snappy: as xerial's SnappyOutputStream writes it, or raw, as older versions of librdkafka and some other clients
# send it.
#
#   at  size  field
#    0     8  magic              0x82 "SNAPPY" 0x00
#    8     4  version            int32, 1
#   12     4  compatible with    int32, 1
#   then blocks, each of at most 32 KiB of data:
#    0     4  size of the block  int32
#    4     .  raw snappy
#
# A raw snappy block begins with its decompressed size, as an unsigned varint. Streams may be concatenated: then a magic
# stands in place of a block's size. Up to three bytes after the last block are ignored, and so is a header there whose
# magic is broken behind its first four bytes, as in Java.

_XERIAL_MAGIC = b"\x82SNAPPY\x00"
_XERIAL_HEADER = _XERIAL_MAGIC + b"\x00\x00\x00\x01\x00\x00\x00\x01"
_XERIAL_BLOCK = 32 * 1024
_INT32 = Struct(">i")
# A copy element of three bytes yields at most 64, so snappy data never expands further.
_SNAPPY_MAX_RATIO = 22


def _compress_snappy(data: Buffer, level: int | None) -> bytes:
    import snappy  # type: ignore[import-untyped]

    view = memoryview(data)
    parts = [_XERIAL_HEADER]
    for start in range(0, view.nbytes, _XERIAL_BLOCK):
        block: bytes = snappy.compress(bytes(view[start : start + _XERIAL_BLOCK]))
        parts += (_INT32.pack(len(block)), block)
    return b"".join(parts)


class _SnappyCompressor:
    """The blocks of a stream."""

    def __init__(self) -> None:
        self._held = bytearray()

    def compress(self, data: bytes, /) -> bytes:
        self._held += data
        return self._blocks(len(self._held) // _XERIAL_BLOCK * _XERIAL_BLOCK)

    def flush(self) -> bytes:
        return self._blocks(len(self._held))

    def _blocks(self, end: int) -> bytes:
        blocks = _compress_snappy(self._held[:end], None)[len(_XERIAL_HEADER) :]
        del self._held[:end]
        return blocks


def _decompress_snappy(data: memoryview, max_bytes: int, for_java: bool) -> Iterator[bytes]:
    if data[:8] != _XERIAL_MAGIC:
        yield _decompress_snappy_block(data, max_bytes)
        return
    room = max_bytes
    position = 0
    end = data.nbytes
    while position < end:
        if data[position : position + 8] == _XERIAL_MAGIC:
            # Java checks the version of a second header only.
            if position and int.from_bytes(data[position + 8 : position + 12], "big", signed=True) < 1:
                raise _corrupt(SNAPPY, "the second header's version is below 1")
            position += len(_XERIAL_HEADER)
            if position > end:
                raise _corrupt(SNAPPY, "the header is cut off")
            continue
        if end - position < _INT32.size and position > len(_XERIAL_HEADER):
            return
        if end - position == len(_XERIAL_HEADER) and data[position : position + 4] == _XERIAL_MAGIC[:4]:
            return
        try:
            (size,) = _INT32.unpack_from(data, position)
        except StructError:
            raise _corrupt(SNAPPY, "a block's size is cut off") from None
        position += 4
        if not 0 <= size <= end - position:
            raise _corrupt(SNAPPY, f"a block claims {size} bytes, {end - position} are there")
        try:
            part = _decompress_snappy_block(data[position : position + size], room)
        except DecompressedTooLargeError:
            raise DecompressedTooLargeError(max_bytes) from None
        room -= len(part)
        yield part
        position += size


def _decompress_snappy_block(block: memoryview, max_bytes: int) -> bytes:
    import snappy

    claimed = _snappy_size(block)
    if claimed > max_bytes:
        raise DecompressedTooLargeError(max_bytes)
    if claimed > block.nbytes * _SNAPPY_MAX_RATIO:
        raise _corrupt(SNAPPY, f"{block.nbytes} bytes claim to expand to {claimed}")
    try:
        data: bytes = snappy.uncompress(bytes(block))
    except snappy.UncompressError as error:
        raise _corrupt(SNAPPY, error.__cause__ or error) from None
    if len(data) != claimed:
        raise _corrupt(SNAPPY, f"a block claims to expand to {claimed} bytes, it came to {len(data)}")
    return data


def _snappy_size(block: memoryview) -> int:
    size = 0
    for shift, byte in zip(range(0, 35, 7), block[:5], strict=False):
        size |= (byte & 0x7F) << shift
        if byte < 0x80:
            return size
    raise _corrupt(SNAPPY, "a block does not say what size it expands to")


# lz4: one frame (lz4's "frame format") of independent blocks of 64 KiB, without checksums or content size, as Kafka's
# Lz4BlockOutputStream writes it. Bytes after the frame are ignored, as in Java. Frames with dependent blocks or a
# dictionary id are read, too: see ``frames``.


def _lz4_options(level: int | None) -> dict[str, Any]:
    import lz4.frame

    # Kafka's default, 9, means the fast compressor; every other level means the high-compression one, whose levels
    # here are 3 to 16.
    own_level = 0 if level is None or level == LEVELS[LZ4][2] else min(max(level, 3), 16)
    return {
        "compression_level": own_level,
        "block_size": lz4.frame.BLOCKSIZE_MAX64KB,
        "block_linked": False,
    }


def _compress_lz4(data: Buffer, level: int | None) -> bytes:
    import lz4.frame

    frame: bytes = lz4.frame.compress(data, store_size=False, **_lz4_options(level))
    return frame


def _decompress_lz4(data: memoryview, max_bytes: int, for_java: bool) -> Iterator[bytes]:
    import lz4.frame

    decompressor = lz4.frame.LZ4FrameDecompressor()
    room = max_bytes
    frame = lz4_frame(data, for_java=for_java)
    pieces = lz4_pieces(frame)
    piece, least = next(pieces, (b"", 0))
    behind = len(frame.blocks) - len(memoryview(piece))
    piece = frame.header + bytes(piece)
    try:
        while True:
            part = decompressor.decompress(piece, max_length=min(_OUTPUT_PIECE, room + 1))
            room -= len(part)
            if room < 0:
                raise DecompressedTooLargeError(max_bytes)
            yield part
            if decompressor.eof:
                break
            piece = b""
            if decompressor.needs_input:
                following = next(pieces, None)
                if following is None:
                    raise _corrupt(LZ4, "the frame is cut off")
                piece, least = following
                behind -= len(memoryview(piece))
    except (RuntimeError, ValueError) as error:
        raise _corrupt(LZ4, error) from None
    if behind + len(decompressor.unused_data or b"") < least:
        raise _corrupt(LZ4, "the frame's checksum is cut off")


# zstd: consecutive frames (RFC 8878).

_zstd_contexts = threading.local()


def _compress_zstd(data: Buffer, level: int | None) -> bytes:
    import zstandard

    compressor = zstandard.ZstdCompressor(level=LEVELS[ZSTD][2] if level is None else level)
    return compressor.compress(memoryview(data))


def _zstd_decompressor() -> Any:
    """This thread's decompressor; making one costs more than decompressing a small batch."""
    decompressor = getattr(_zstd_contexts, "decompressor", None)
    if decompressor is None:
        import zstandard

        decompressor = _zstd_contexts.decompressor = zstandard.ZstdDecompressor()
    return decompressor


def _decompress_zstd(data: memoryview, max_bytes: int, for_java: bool) -> Iterator[bytes]:
    import zstandard

    context = _zstd_decompressor()
    room = max_bytes
    position = 0
    while True:
        frame = context.decompressobj()
        start = position
        try:
            # The library returns everything that its input yields: so its input is cut where blocks end.
            for stop in zstd_stops(data, start, for_java=for_java):
                part = frame.decompress(data[position:stop])
                position = min(stop, data.nbytes)
                room -= len(part)
                if room < 0:
                    raise DecompressedTooLargeError(max_bytes)
                yield part
                if frame.eof:
                    break
        except zstandard.ZstdError as error:
            raise _corrupt(ZSTD, error) from None
        if not frame.eof:
            if zstd_is_over(data, start):
                return
            raise _corrupt(ZSTD, "the frame is cut off")
        position -= len(frame.unused_data)
        if position == data.nbytes:
            return


_COMPRESSORS: dict[int, Callable[[Buffer, int | None], bytes]] = {
    NONE: _copy,
    GZIP: _compress_gzip,
    SNAPPY: _compress_snappy,
    LZ4: _compress_lz4,
    ZSTD: _compress_zstd,
}
_DECOMPRESSORS: dict[int, Callable[[memoryview, int, bool], Iterator[bytes]]] = {
    NONE: _bounded_copy,
    GZIP: _decompress_gzip,
    SNAPPY: _decompress_snappy,
    LZ4: _decompress_lz4,
    ZSTD: _decompress_zstd,
}
