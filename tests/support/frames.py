"""Compressed records in every frame that a codec's format allows, and in many that it doesn't.

Each frame is built by hand, so that one option differs from what Kafka's Java clients write. The body is that of a
record batch or of a message set. ``records/golden/frames.tsv`` holds what Kafka says of each, and
``interop/test_frames.py`` asks it.
"""

from __future__ import annotations

import struct
import zlib
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple

import lz4.block  # type: ignore[import-untyped]
import lz4.frame  # type: ignore[import-untyped]
import snappy  # type: ignore[import-untyped]
import zstandard

from ottla_protocol.records.batch import write_crc
from ottla_protocol.records.compression import GZIP, LZ4, SNAPPY, ZSTD
from ottla_protocol.records.message_set import encode_messages
from ottla_protocol.records.record import Record, encode_batch
from ottla_protocol.records.xxh32 import xxh32

TIME = 1_700_000_000_000
KAFKAS: Final = ("3.9.1", "4.4.0")
"""The versions of Kafka that were asked."""
READ: Final = "stored reads"
"""The verdict on a frame that a broker stores, and of which a consumer reads all records."""
_VERDICTS: Final = Path(__file__).parents[1] / "records" / "golden" / "frames.tsv"
_BATCH_HEADER = 61


class Frame(NamedTuple):
    """A codec's bytes, and the name of what is special about them."""

    codec: int
    name: str
    data: bytes


class Case(NamedTuple):
    """What a producer sends: a batch or a message set with a frame in it."""

    name: str
    data: bytes


def values() -> list[bytes]:
    """The records' values: together three blocks of 64 KiB, which compress a little."""
    return [b"%03d" % index + b"%d," % (index * index) * 500 for index in range(60)]


def verdicts() -> dict[str, tuple[str, ...]]:
    """What each of KAFKAS says of each case: "stored" or the broker's error, and "reads", "differs" or "fails"."""
    rows = (line.split("\t") for line in _VERDICTS.read_text().splitlines())
    return {name: tuple(said) for name, *said in rows}


def write_verdicts(found: dict[str, tuple[str, ...]]) -> None:
    """Keep the verdicts as the golden ones."""
    _VERDICTS.write_text("".join("\t".join((name, *said)) + "\n" for name, said in found.items()))


def cases() -> Iterator[Case]:
    """Each frame in a batch of format 2 and, where it has the codec, in message sets of the formats 0 and 1."""
    records = [(TIME, None, value, ()) for value in values()]
    plain = bytes(encode_batch(records))
    for frame in frames(plain[_BATCH_HEADER:]):
        yield Case(f"2 {frame.name}", _batch(plain, frame))
    for magic in (0, 1):
        of_set = [Record(index, TIME, None, value, ()) for index, value in enumerate(values())]
        for frame in frames(encode_messages(of_set, magic), broken_checksums=magic == 0):
            if frame.codec != ZSTD:
                yield Case(f"{magic} {frame.name}", _wrapper(magic, frame, len(of_set) - 1))


def frames(body: bytes, *, broken_checksums: bool = False) -> Iterator[Frame]:
    """All frames of ``body``; with ``broken_checksums``, LZ4's headers have the checksum of the oldest clients."""
    for codec, name, make in (
        (GZIP, "gzip", _gzip),
        (SNAPPY, "snappy", _snappy),
        (LZ4, "lz4", lambda body: _lz4(body, broken=broken_checksums)),
        (ZSTD, "zstd", _zstd),
    ):
        for what, data in make(body):
            yield Frame(codec, f"{name}: {what}", data)


def _batch(plain: bytes, frame: Frame) -> bytes:
    batch = bytearray(plain[:_BATCH_HEADER] + frame.data)
    struct.pack_into(">i", batch, 8, len(batch) - 12)
    struct.pack_into(">h", batch, 21, frame.codec)
    write_crc(batch, 0, len(batch))
    return bytes(batch)


def _wrapper(magic: int, frame: Frame, last: int) -> bytes:
    stamp = struct.pack(">q", TIME) if magic else b""
    body = (
        struct.pack(">bb", magic, frame.codec) + stamp + struct.pack(">ii", -1, len(frame.data)) + frame.data
    )
    return struct.pack(">qiI", last, len(body) + 4, zlib.crc32(body)) + body


def _halves(body: bytes) -> tuple[bytes, bytes]:
    return body[: len(body) // 2], body[len(body) // 2 :]


# gzip

_TEXT, _HEADER_CRC, _EXTRA, _NAME, _COMMENT = 1, 2, 4, 8, 16


def _member(
    body: bytes, flags: int = 0, fields: bytes = b"", *, level: int = 6, crc: int = 0, size: int = 0
) -> bytes:
    """One member; ``crc`` and ``size`` are added to the right ones."""
    head = b"\x1f\x8b\x08" + bytes([flags]) + b"\0\0\0\0\0\3" + fields
    if flags & _HEADER_CRC:
        head += struct.pack("<H", zlib.crc32(head) & 0xFFFF)
    deflated = zlib.compressobj(level, zlib.DEFLATED, -15)
    data = deflated.compress(body) + deflated.flush()
    return head + data + struct.pack("<II", (zlib.crc32(body) + crc) % 2**32, (len(body) + size) % 2**32)


def _wrong_header(body: bytes) -> bytes:
    """A member whose header has a wrong checksum."""
    return _member(body, _HEADER_CRC)[:10] + b"\1\2" + _member(body)[10:]


def _gzip(body: bytes) -> Iterator[tuple[str, bytes]]:
    first, second = _halves(body)
    whole = _member(body)
    for level in (0, 1, 9):
        yield f"level {level}", _member(body, level=level)
    extra, named, comment = b"\x04\0Ab\0\0", b"name\0", b"comment\0"
    yield "text flag", _member(body, _TEXT)
    yield "header checksum", _member(body, _HEADER_CRC)
    yield "wrong header checksum", _wrong_header(body)
    yield "extra field", _member(body, _EXTRA, extra)
    yield "empty extra field", _member(body, _EXTRA, b"\0\0")
    yield "extra field of 60,000 bytes", _member(body, _EXTRA, struct.pack("<H", 60_000) + bytes(60_000))
    yield "name", _member(body, _NAME, named)
    yield "comment", _member(body, _COMMENT, comment)
    yield "all fields", _member(body, 31, extra + named + comment)
    yield "a name without an end", _member(body, _NAME, b"x" * 50)[:60]
    for bit in (0x20, 0x40, 0x80):
        yield f"reserved flag {bit:#x}", _member(body, bit)
    yield "time, level and system", whole[:4] + b"\1\2\3\4\2\xff" + whole[10:]
    yield "method 7", whole[:2] + b"\7" + whole[3:]
    yield "wrong checksum", _member(body, crc=1)
    yield "wrong size", _member(body, size=1)
    for cut in (1, 4, 7, 8, 9, 2000):
        yield f"{cut} bytes cut off", whole[:-cut]
    yield "header alone", whole[:10]
    yield "nothing", b""
    yield "two members", _member(first) + _member(second)
    yield "a member for each KiB", b"".join(_member(body[at : at + 1024]) for at in range(0, len(body), 1024))
    yield "an empty member first", _member(b"") + whole
    yield "an empty member amid", _member(first) + _member(b"") + _member(second)
    yield "an empty member last", whole + _member(b"")
    yield "300 empty members first", _member(b"") * 300 + whole
    yield "another member with bytes", whole + _member(b"more")
    yield "another member with flags", _member(first) + _member(second, 31, extra + named + comment)
    for size in (1, 2, 8, 9, 17, 18, 19, 26, 27, 100, 20_000):
        yield f"{size} zero bytes after it", whole + bytes(size)
    yield "a magic number after it", whole + b"\x1f\x8b"
    yield "a header after it", whole + whole[:10]
    yield "a header and 8 bytes after it", whole + whole[:18]
    yield "a header and 9 bytes after it", whole + whole[:19]
    yield "half a member after it", whole + whole[:2000]
    yield "a header and bytes after it", whole + whole[:10] + b"\xff" * 100
    yield "a header of method 7 after it", whole + whole[:2] + b"\7" + whole[3:]
    yield "the second member cut off", _member(first) + _member(second)[:-4]
    yield "the second member's checksum wrong", _member(first) + _member(second, crc=1)
    yield "the second member's header checksum wrong", _member(first) + _wrong_header(second)
    yield "the second member with a reserved flag", _member(first) + _member(second, 0x80)
    yield "a short member with a wrong checksum after it", whole + _member(b"", crc=1)
    yield "zlib's own format", zlib.compress(body)
    yield "deflate alone", whole[10:-8]
    for after in (1, 10, 18):
        for size in range(8172, 8212, 3):
            yield (
                f"{after} bytes of a header after {size}",
                _filled(body, size) + (whole[:10] + bytes(8))[:after],
            )
    for left in (0, 17, 18, 19, 26, 27):
        yield f"two members, {left} bytes before 8 KiB", _ending_at(body, 8192 - left)


def _ending_at(body: bytes, end: int) -> bytes:
    """Two members; the deflated data of the first end there, because an extra field fills the room."""
    short = _member(body[:1000])
    room = end - (len(short) - 8) - 2
    return _member(body[:1000], _EXTRA, struct.pack("<H", room) + bytes(room)) + _member(body[1000:])


def _filled(body: bytes, size: int) -> bytes:
    """A member with about that many bytes after its header: empty blocks fill the room."""
    short = _member(body)
    return short[:10] + b"\0\0\0\xff\xff" * ((size - len(short) + 10) // 5) + short[10:]


# snappy

_XERIAL = b"\x82SNAPPY\0"


def _xerial(chunks: list[bytes], version: int = 1, compatible: int = 1) -> bytes:
    return _XERIAL + struct.pack(">ii", version, compatible) + b"".join(map(_chunk, chunks))


def _chunk(data: bytes) -> bytes:
    block: bytes = snappy.compress(data)
    return struct.pack(">i", len(block)) + block


def _snappy(body: bytes) -> Iterator[tuple[str, bytes]]:
    def pieces(size: int) -> list[bytes]:
        return [body[at : at + size] for at in range(0, len(body), size)]

    first, second = _halves(body)
    whole = _xerial(pieces(32768))
    raw: bytes = snappy.compress(body)
    for size in (1, 100, 32768, 65536, 10**9):
        yield (
            f"chunks of {size}",
            _xerial(pieces(size))
            if size > 1
            else _xerial([*pieces(32768)[:-1], *(bytes([byte]) for byte in pieces(32768)[-1])]),
        )
    for version, compatible in ((0, 0), (0, 1), (1, 0), (1, 2), (2, 1), (2, 2), (-1, 1), (2**31 - 1, 1)):
        yield f"version {version} {compatible}", _xerial(pieces(32768), version, compatible)
    yield "an empty chunk first", _xerial([b"", *pieces(32768)])
    yield "an empty chunk amid", _xerial([first, b"", second])
    yield "an empty chunk last", _xerial([body, b""])
    yield "a thousand empty chunks", _xerial([b""] * 1000 + [body])
    none = struct.pack(">i", 0)
    yield "a chunk of no bytes first", whole[:16] + none + whole[16:]
    yield "a chunk of no bytes amid", _xerial([first]) + none + _chunk(second)
    yield "a chunk of no bytes last", whole + none
    yield "a negative chunk first", whole[:16] + struct.pack(">i", -1) + whole[16:]
    yield "a negative chunk last", whole + struct.pack(">i", -1)
    yield "a chunk that claims too much last", whole + struct.pack(">i", 10) + b"ab"
    yield "a chunk that claims 2 GiB last", whole + struct.pack(">i", 2**31 - 1)
    for size in (1, 2, 3, 4, 5, 16, 100):
        yield f"{size} zero bytes after it", whole + bytes(size)
        yield f"{size} bytes 255 after it", whole + b"\xff" * size
    for cut in (1, 100, 40_000):
        yield f"{cut} bytes cut off", whole[:-cut]
    yield "header alone", whole[:16]
    yield "half a header", whole[:12]
    yield "nothing", b""
    yield "two streams", _xerial([first]) + _xerial([second])
    yield "two streams, the second of version 0", _xerial([first]) + _xerial([second], 0, 0)
    yield (
        "two streams, the second's header broken",
        _xerial([first]) + b"\x82SNAPPx\0" + _xerial([second])[8:],
    )
    for version, compatible in ((-1, 1), (1, 0), (2, 2)):
        yield (
            f"two streams, the second of version {version} {compatible}",
            (_xerial([first]) + _xerial([second], version, compatible)),
        )
    yield "an empty stream with a broken header last", whole + b"\x82SNAPPx\0" + _xerial([])[8:]
    yield "a stream with a broken header last", whole + b"\x82SNAPPx\0" + whole[8:]
    yield "an empty stream first", _xerial([]) + whole
    yield "an empty stream last", whole + _xerial([])
    yield "half a header last", whole + whole[:12]
    yield "a magic number last", whole + whole[:8]
    yield "raw", raw
    yield "raw, zero bytes after it", raw + bytes(4)
    yield "raw, cut off", raw[:-1]
    yield "raw, a size of five bytes", _overlong(raw)
    yield "raw, a size too large", _resized(raw, len(body) + 1)
    yield "raw, a size too small", _resized(raw, len(body) - 1)
    yield "raw twice", snappy.compress(first) + snappy.compress(second)
    yield (
        "a chunk with a size too large",
        _XERIAL + struct.pack(">iii", 1, 1, len(raw)) + _resized(raw, len(body) + 1),
    )
    yield (
        "a chunk with a size of five bytes",
        _XERIAL + struct.pack(">iii", 1, 1, len(_overlong(raw))) + _overlong(raw),
    )
    yield "Google's framing", b"\xff\x06\0\0sNaPpY" + raw


def _varint(number: int) -> bytes:
    out = b""
    while number > 127:
        out += bytes([number & 127 | 128])
        number >>= 7
    return out + bytes([number])


def _size_of(raw: bytes) -> tuple[int, int]:
    number = shift = at = 0
    while True:
        byte = raw[at]
        number |= (byte & 127) << shift
        at, shift = at + 1, shift + 7
        if byte < 128:
            return number, at


def _resized(raw: bytes, size: int) -> bytes:
    return _varint(size) + raw[_size_of(raw)[1] :]


def _overlong(raw: bytes) -> bytes:
    size, at = _size_of(raw)
    return bytes([size >> shift & 127 | 128 for shift in (0, 7, 14, 21)]) + b"\0" + raw[at:]


# lz4

_MAGIC = 0x184D2204
_INDEPENDENT, _BLOCK_SUMS, _SIZED, _SUMMED, _DICTIONARY = 0x20, 0x10, 0x08, 0x04, 0x01
_USUAL = 0x40 | _INDEPENDENT
_END = bytes(4)


def _lz4_block(data: bytes, *, raw: bool = False, sums: bool = False, wrong: int = 0) -> bytes:
    block = data if raw else lz4.block.compress(data, store_size=False)
    checksum = struct.pack("<I", (xxh32(block) + wrong) % 2**32) if sums else b""
    return struct.pack("<I", len(block) | raw << 31) + block + checksum


class _Lz4Frames:
    """Makes frames of blocks, with a header's checksum that is right, or that of clients before Kafka 0.10."""

    def __init__(self, broken: bool) -> None:
        self._broken = broken

    def head(self, flags: int = _USUAL, size: int = 0x40, fields: bytes = b"", wrong: int = 0) -> bytes:
        start = struct.pack("<I", _MAGIC)
        covered = bytes([flags, size]) + fields
        checksum = xxh32(start + covered if self._broken else covered) >> 8
        return start + covered + bytes([(checksum + wrong) & 255])

    def frame(self, blocks: list[bytes], flags: int = _USUAL, **rest: int | bytes) -> bytes:
        end = bytes(rest.pop("end", _END))
        return self.head(flags, **rest) + b"".join(blocks) + end  # type: ignore[arg-type]


def _lz4(body: bytes, *, broken: bool) -> Iterator[tuple[str, bytes]]:
    make = _Lz4Frames(broken)
    yield from _lz4_headers(body, make)
    yield from _lz4_blocks(body, make)
    yield from _lz4_streams(body, make)


def _of_64k(body: bytes) -> list[bytes]:
    return [body[at : at + 65536] for at in range(0, len(body), 65536)]


def _lz4_headers(body: bytes, make: _Lz4Frames) -> Iterator[tuple[str, bytes]]:
    usual = [_lz4_block(each) for each in _of_64k(body)]
    size = struct.pack("<Q", len(body))
    checksum = struct.pack("<I", xxh32(body))
    for options in range(8):
        sums, sized, summed = options & 4, options & 2, options & 1
        named = [
            name for on, name in ((sums, "block checksums"), (sized, "size"), (summed, "checksum")) if on
        ]
        flags = _USUAL | (_BLOCK_SUMS if sums else 0) | (_SIZED if sized else 0) | (_SUMMED if summed else 0)
        blocks = [_lz4_block(each, sums=True) for each in _of_64k(body)] if sums else usual
        end = _END + checksum if summed else _END
        yield (
            " and ".join(named) or "usual",
            make.frame(blocks, flags, fields=size if sized else b"", end=end),
        )
    for code in range(8):
        yield f"block size {code}", make.frame(usual, size=code << 4)
    yield "one block of 4 MiB", make.frame([_lz4_block(body)], size=0x70)
    for bits in (0x01, 0x08, 0x80):
        yield f"reserved bits {bits:#x} in the block size", make.frame(usual, size=0x40 | bits)
    for version in (0, 2, 3):
        yield f"version {version}", make.frame(usual, version << 6 | _INDEPENDENT)
    yield "reserved flag", make.frame(usual, _USUAL | 2)
    yield "dictionary id 0", make.frame(usual, _USUAL | _DICTIONARY, fields=bytes(4))
    yield "dictionary id 7", make.frame(usual, _USUAL | _DICTIONARY, fields=struct.pack("<I", 7))
    yield (
        "dependent blocks",
        lz4.frame.compress(body, block_linked=True, block_size=lz4.frame.BLOCKSIZE_MAX64KB),
    )
    yield "dependent blocks that don't refer to others", make.frame(usual, 0x40)
    yield "one dependent block", make.frame([_lz4_block(body)], 0x40, size=0x70)
    yield "wrong header checksum", make.frame(usual, wrong=1)
    yield "the header checksum of other clients", _Lz4Frames(not make._broken).frame(usual)
    for name, claim in (
        ("larger", len(body) + 1),
        ("smaller", len(body) - 1),
        ("of 2^64-1", 2**64 - 1),
        ("0", 0),
    ):
        yield f"a size that is {name}", make.frame(usual, _USUAL | _SIZED, fields=struct.pack("<Q", claim))
    yield "a checksum that is wrong", make.frame(usual, _USUAL | _SUMMED, end=_END + b"\1\2\3\4")
    yield (
        "a size and a checksum that are wrong",
        make.frame(usual, _USUAL | _SUMMED | _SIZED, fields=bytes([9]) * 8, end=_END + b"\1\2\3\4"),
    )
    for left in (0, 3):
        yield f"{left} bytes of a checksum", make.frame(usual, _USUAL | _SUMMED, end=_END + bytes(left))
    summed_blocks = [_lz4_block(each, sums=True) for each in _of_64k(body)]
    yield (
        "a wrong checksum of the first block",
        make.frame([_lz4_block(body[:65536], sums=True, wrong=1), *summed_blocks[1:]], _USUAL | _BLOCK_SUMS),
    )
    yield "no checksums of blocks that should have them", make.frame(usual, _USUAL | _BLOCK_SUMS)


def _lz4_blocks(body: bytes, make: _Lz4Frames) -> Iterator[tuple[str, bytes]]:
    usual = [_lz4_block(each) for each in _of_64k(body)]
    no_bytes = _lz4_block(b"", raw=True)
    nothing = struct.pack("<I", 1) + b"\0"
    yield "raw blocks", make.frame([_lz4_block(each, raw=True) for each in _of_64k(body)])
    yield (
        "raw blocks with checksums",
        make.frame([_lz4_block(each, raw=True, sums=True) for each in _of_64k(body)], _USUAL | _BLOCK_SUMS),
    )
    yield (
        "raw blocks of one byte",
        make.frame(
            [
                *usual[:-1],
                *(_lz4_block(bytes([each]), raw=True) for each in _of_64k(body)[-1][:2000]),
                _lz4_block(_of_64k(body)[-1][2000:]),
            ]
        ),
    )
    for name, empty in (
        ("raw", no_bytes),
        ("compressed", nothing),
        ("compressed, odd", struct.pack("<I", 1) + b"\x0f"),
    ):
        yield f"an empty block first, {name}", make.frame([empty, *usual])
        yield f"an empty block amid, {name}", make.frame([usual[0], empty, *usual[1:]])
        yield f"an empty block last, {name}", make.frame([*usual, empty])
    for name, empty in (("raw", no_bytes), ("compressed", nothing)):
        yield (
            f"an empty block last, {name}, and bytes after it",
            make.frame([*usual, empty, b"\x80\0\0\0more"]),
        )
        yield f"an empty block instead of the end, {name}", make.frame([*usual, empty], end=b"")
        yield (
            f"an empty block last, {name}, with the contents' checksum",
            make.frame([*usual, empty], _USUAL | _SUMMED, end=_END + bytes(4)),
        )
        yield (
            f"an empty block last, {name}, without the contents' checksum",
            make.frame([*usual, empty], _USUAL | _SUMMED, end=b""),
        )
    yield "an empty raw block instead of the end", make.frame([*usual, no_bytes], end=b"")
    yield (
        "an empty raw block with a checksum amid",
        make.frame(
            [
                _lz4_block(body[:65536], sums=True),
                _lz4_block(b"", raw=True, sums=True),
                *(_lz4_block(each, sums=True) for each in _of_64k(body)[1:]),
            ],
            _USUAL | _BLOCK_SUMS,
        ),
    )
    yield "a compressed block of no size first", make.frame([bytes(4), *usual])
    yield (
        "a raw block that is too large",
        make.frame([_lz4_block(body[:65537], raw=True), _lz4_block(body[65537:])]),
    )
    yield (
        "a compressed block that yields too much",
        make.frame([_lz4_block(body[:65537]), _lz4_block(body[65537:])]),
    )
    yield "a block larger than its size", make.frame([struct.pack("<I", 65537) + bytes(65537)])
    yield "a block of nonsense", make.frame([struct.pack("<I", 100) + b"\xff" * 100])
    yield "a block of nonsense last", make.frame([*usual, struct.pack("<I", 100) + b"\xff" * 100])


def _lz4_streams(body: bytes, make: _Lz4Frames) -> Iterator[tuple[str, bytes]]:
    usual = [_lz4_block(each) for each in _of_64k(body)]
    whole = make.frame(usual)
    skippable = struct.pack("<II", 0x184D2A50, 5) + b"hello"
    yield "no end mark", whole[:-4]
    yield "half an end mark", whole[:-2]
    yield "a block cut off", whole[:-100]
    yield "header alone", whole[:7]
    yield "half a header", whole[:5]
    yield "no blocks", make.frame([])
    yield "nothing", b""
    for size in (1, 4, 100):
        yield f"{size} zero bytes after it", whole + bytes(size)
        yield f"{size} bytes 255 after it", whole + b"\xff" * size
    yield "two frames", make.frame(usual[:1]) + make.frame(usual[1:])
    yield "the same frame again", whole + whole
    yield "an empty frame first", make.frame([]) + whole
    yield "an empty frame last", whole + make.frame([])
    yield "a skippable frame first", skippable + whole
    yield "a skippable frame last", whole + skippable
    yield "the legacy format", struct.pack("<I", 0x184C2102) + _lz4_block(body)
    yield "a block alone", lz4.block.compress(body, store_size=False)


# zstd

_ZSTD = struct.pack("<I", 0xFD2FB528)
_KEPT, _RLE, _RESERVED = 0, 1, 3


def _zstd_block(data: bytes, kind: int = _KEPT, *, last: bool = False, size: int | None = None) -> bytes:
    size = len(data) if size is None else size
    return struct.pack("<I", size << 3 | kind << 1 | last)[:3] + data


def _kept(body: bytes, size: int = 131072, *, end: bool = True) -> bytes:
    pieces = [body[at : at + size] for at in range(0, len(body), size)] or [b""]
    return b"".join(_zstd_block(each, last=end and at == len(pieces) - 1) for at, each in enumerate(pieces))


def _zstd_frame(
    blocks: bytes, *, flags: int = 0, window: int | None = 20, fields: bytes = b"", end: bytes = b""
) -> bytes:
    described = b"" if window is None else bytes([(window - 10) << 3])
    return _ZSTD + bytes([flags]) + described + fields + blocks + end


def _zstd(body: bytes) -> Iterator[tuple[str, bytes]]:
    yield from _zstd_headers(body)
    yield from _zstd_streams(body)


def _zstd_headers(body: bytes) -> Iterator[tuple[str, bytes]]:
    blocks = _kept(body)
    checksum = zstandard.ZstdCompressor(write_checksum=True).compress(body)[-4:]
    size = struct.pack("<I", len(body))
    for level in (-5, 1, 19):
        yield f"level {level}", zstandard.ZstdCompressor(level=level).compress(body)
    unsized = zstandard.ZstdCompressor(write_content_size=False, write_checksum=True)
    yield "no size, a checksum", unsized.compress(body)
    for window in (10, 16, 17, 20, 23, 26, 27, 28, 30, 31, 32, 41):
        yield (
            f"a window of 2^{window}",
            _zstd_frame(blocks if window > 16 else _kept(body, 1024), window=window),
        )
    for size_of in (1000, 100_000):
        sized = (body[at : at + size_of] for at in range(0, len(body), size_of))
        yield (
            f"windows of 2^28 and sizes of {size_of}",
            b"".join(
                _zstd_frame(_kept(each), flags=0xC0, window=28, fields=struct.pack("<Q", len(each)))
                for each in sized
            ),
        )
    yield "a window of 2^27 and an eighth", _ZSTD + b"\0" + bytes([(27 - 10) << 3 | 1]) + blocks
    yield "blocks larger than the window", _zstd_frame(blocks, window=10)
    yield "one segment", _zstd_frame(blocks, flags=0xA0, window=None, fields=size)
    yield (
        "one segment with a checksum",
        _zstd_frame(blocks, flags=0xA4, window=None, fields=size, end=checksum),
    )
    yield "a size of eight bytes", _zstd_frame(blocks, flags=0xC0, fields=struct.pack("<Q", len(body)))
    yield "a size and a window", _zstd_frame(blocks, flags=0x80, fields=size)
    yield "one segment of 2^28", _zstd_frame(blocks, flags=0xA0, window=None, fields=struct.pack("<I", 2**28))
    for name, claim in (
        ("larger", len(body) + 1),
        ("smaller", len(body) - 1),
        ("of 2^64-2", 2**64 - 2),
        ("0", 0),
    ):
        yield f"a size that is {name}", _zstd_frame(blocks, flags=0xC0, fields=struct.pack("<Q", claim))
    yield "a wrong checksum", _zstd_frame(blocks, flags=4, end=b"\1\2\3\4")
    yield "no checksum though flagged", _zstd_frame(blocks, flags=4)
    for width, flag in ((1, 1), (2, 2), (4, 3)):
        yield f"dictionary id 0 in {width} bytes", _zstd_frame(blocks, flags=flag, fields=bytes(width))
        yield (
            f"dictionary id 5 in {width} bytes",
            _zstd_frame(blocks, flags=flag, fields=(5).to_bytes(width, "little")),
        )
    yield "reserved bit", _zstd_frame(blocks, flags=8)
    yield "unused bit", _zstd_frame(blocks, flags=16)
    yield "without a magic number", _zstd_frame(blocks)[4:]


def _zstd_streams(body: bytes) -> Iterator[tuple[str, bytes]]:
    first, second = _halves(body)
    whole = _zstd_frame(_kept(body))
    empty = _zstd_frame(_zstd_block(b"", last=True))
    skippable = struct.pack("<II", 0x184D2A5F, 5) + b"hello"
    yield "blocks of 100 bytes", _zstd_frame(_kept(body, 100))
    yield "an empty block first", _zstd_frame(_zstd_block(b"") + _kept(body))
    yield "an empty block last", _zstd_frame(_kept(body, end=False) + _zstd_block(b"", last=True))
    yield "a thousand empty blocks", _zstd_frame(_zstd_block(b"") * 1000 + _kept(body))
    yield "an empty repeated block first", _zstd_frame(_zstd_block(b"x", _RLE, size=0) + _kept(body))
    yield (
        "a repeated byte",
        _zstd_frame(_kept(body[:-1], end=False) + _zstd_block(body[-1:], _RLE, size=1, last=True)),
    )
    yield "a block of a reserved kind", _zstd_frame(_zstd_block(b"abc", _RESERVED) + _kept(body))
    yield "a block that is too large", _zstd_frame(_zstd_block(body, last=True))
    yield "no last block", _zstd_frame(_kept(body, end=False))
    for cut in (1, 100):
        yield f"{cut} bytes cut off", whole[:-cut]
    yield "header alone", whole[:6]
    yield "nothing", b""
    for size in (1, 3, 4, 100):
        yield f"{size} zero bytes after it", whole + bytes(size)
        yield f"{size} bytes 255 after it", whole + b"\xff" * size
    yield "two frames", _zstd_frame(_kept(first)) + _zstd_frame(_kept(second))
    yield "the second frame cut off", _zstd_frame(_kept(first)) + _zstd_frame(_kept(second))[:-1]
    yield "a frame with more bytes after it", whole + _zstd_frame(_kept(b"more"))
    yield "an empty frame first", empty + whole
    yield "an empty frame amid", _zstd_frame(_kept(first)) + empty + _zstd_frame(_kept(second))
    yield "an empty frame last", whole + empty
    yield "a thousand empty frames", empty * 1000 + whole
    yield "a skippable frame first", skippable + whole
    yield "a skippable frame amid", _zstd_frame(_kept(first)) + skippable + _zstd_frame(_kept(second))
    yield "a skippable frame last", whole + skippable
    yield "half a skippable frame last", whole + skippable[:6]
    yield (
        "a skippable frame that claims too much last",
        whole + struct.pack("<II", 0x184D2A50, 100) + b"hello",
    )
    yield "half a magic number last", whole + _ZSTD[:2]
    yield "a magic number last", whole + _ZSTD
    yield "half a header last", whole + whole[:5]
    for end in (262_146, 262_149, 262_150, 262_151):
        room = end - len(whole) - 8
        padded = struct.pack("<II", 0x184D2A50, room) + bytes(room) + whole
        yield f"a magic number after {end} bytes", padded + _ZSTD
    short = _zstd_frame(_zstd_block(first) + _zstd_block(second, last=True, size=len(second) + 9))
    yield "a block that claims too much last", short
    yield "a block that claims too much last, after an empty frame", empty + short
    yield "a block that claims too much last, after a skippable frame", skippable + short
    yield "a frame without a whole block last", whole + _zstd_frame(_kept(body))[:1000]
