"""The codecs: their output, their input, and their limits."""

from __future__ import annotations

import gzip
import itertools
import random
import struct
import tracemalloc

import lz4.frame  # type: ignore[import-untyped]
import pytest
import snappy  # type: ignore[import-untyped]
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from ottla_protocol.errors import LocalProtocolError
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.compression import (
    CODEC_NAMES,
    GZIP,
    LEVELS,
    LZ4,
    NONE,
    SNAPPY,
    ZSTD,
    DecompressedTooLargeError,
    check_level,
    compress,
    decompress,
)

CODECS = (GZIP, SNAPPY, LZ4, ZSTD)
TEXT = b"The quick brown fox jumps over the lazy dog. " * 5000
NOISE = random.Random(5).randbytes(200_000)
MEGABYTE = 1024 * 1024

every_codec = pytest.mark.parametrize("codec", CODECS, ids=CODEC_NAMES[1:])


@given(st.sampled_from((NONE, *CODECS)), st.binary(max_size=300), st.integers(1, 500))
def test_round_trip(codec: int, piece: bytes, times: int) -> None:
    data = piece * times
    assert decompress(codec, compress(codec, data)) == data


@every_codec
@pytest.mark.parametrize("data", [b"", b"x", TEXT, NOISE, TEXT + NOISE], ids=len)
def test_views_read_like_bytes(codec: int, data: bytes) -> None:
    compressed = compress(codec, memoryview(bytearray(data)))
    assert decompress(codec, memoryview(bytearray(b"..." + compressed))[3:]) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [(codec, level) for codec, (least, most, usual) in LEVELS.items() for level in (least, most, usual)],
)
def test_levels(codec: int, level: int) -> None:
    check_level(codec, level)
    data = TEXT[:20_000]
    assert decompress(codec, compress(codec, data, level)) == data


@pytest.mark.parametrize(
    ("codec", "level"),
    [
        (GZIP, 0),
        (GZIP, 10),
        (GZIP, -2),
        (LZ4, 0),
        (LZ4, 18),
        (ZSTD, 23),
        (ZSTD, -131073),
        (SNAPPY, 1),
        (NONE, 1),
    ],
)
def test_invalid_levels(codec: int, level: int) -> None:
    with pytest.raises(LocalProtocolError, match=str(level)):
        compress(codec, b"", level)


@pytest.mark.parametrize("codec", [-1, 5, 7])
def test_unknown_codecs(codec: int) -> None:
    with pytest.raises(LocalProtocolError, match=str(codec)):
        compress(codec, b"")
    with pytest.raises(CorruptRecordError, match=str(codec)):
        decompress(codec, b"")


@every_codec
@pytest.mark.parametrize("data", [TEXT[:3000], NOISE[:3000], TEXT[:90_000]], ids=["text", "noise", "long"])
def test_every_truncation_is_noticed(codec: int, data: bytes) -> None:
    compressed = compress(codec, data)
    step = max(1, len(compressed) // 500)
    blocks = xerial_blocks(compressed) if codec == SNAPPY else []
    for size in range(0, len(compressed), step):
        # xerial's framing has no end mark: whole blocks are a whole stream, and as in Java with up to three bytes more.
        if size in blocks[:1] or any(end <= size < end + 4 for end in blocks[1:]):
            assert data.startswith(decompress(codec, compressed[:size]))
        else:
            with pytest.raises(CorruptRecordError):
                decompress(codec, compressed[:size])


def xerial_blocks(stream: bytes) -> list[int]:
    """Where blocks end, and so the stream could."""
    ends = [16]
    while ends[-1] < len(stream):
        (size,) = struct.unpack_from(">i", stream, ends[-1])
        ends.append(ends[-1] + 4 + size)
    return ends


@every_codec
def test_damage_is_an_error_or_other_bytes(codec: int) -> None:
    chance = random.Random(codec)
    compressed = compress(codec, TEXT[:5000] + NOISE[:500])
    for _ in range(2000):
        damaged = bytearray(compressed)
        for _ in range(chance.randint(1, 4)):
            damaged[chance.randrange(len(damaged))] = chance.randrange(256)
        try:
            decompress(codec, damaged, MEGABYTE)
        except CorruptRecordError:
            continue


@every_codec
@pytest.mark.parametrize(
    "data", [b"", b"\0" * 100, b"\xff" * 100, NOISE[:100]], ids=["empty", "zero", "ones", "noise"]
)
def test_nonsense(codec: int, data: bytes) -> None:
    with pytest.raises(CorruptRecordError):
        decompress(codec, data)


@pytest.mark.parametrize("codec", [NONE, *CODECS], ids=CODEC_NAMES)
def test_the_bound_is_exact(codec: int) -> None:
    compressed = compress(codec, TEXT)
    assert decompress(codec, compressed, len(TEXT)) == TEXT
    with pytest.raises(DecompressedTooLargeError, match=f"more than {len(TEXT) - 1} bytes") as caught:
        decompress(codec, compressed, len(TEXT) - 1)
    assert caught.value.max_bytes == len(TEXT) - 1


def bombs() -> list[tuple[int, bytes]]:
    """Small streams of each kind that expand to 300 MB, or say so."""
    size = 300 * MEGABYTE
    layers = zstandard.ZstdCompressor(level=1)
    stream = layers.compressobj()
    unsized = b"".join(stream.compress(bytes(MEGABYTE)) for _ in range(300)) + stream.flush()
    block = snappy.compress(bytes(32 * 1024))
    return [
        (GZIP, gzip.compress(bytes(size), 1)),
        (ZSTD, layers.compress(bytes(size))),
        (ZSTD, unsized),
        (LZ4, lz4.frame.compress(bytes(size))),
        (SNAPPY, snappy.compress(bytes(size))),
        (SNAPPY, compress(SNAPPY, b"") + (struct.pack(">i", len(block)) + block) * 9600),
    ]


def test_bombs_stop_at_the_bound() -> None:
    for codec, bomb in bombs():
        tracemalloc.start()
        try:
            with pytest.raises(DecompressedTooLargeError):
                decompress(codec, bomb, 4 * MEGABYTE)
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak < 48 * MEGABYTE + len(bomb), (CODEC_NAMES[codec], peak)


@pytest.mark.parametrize("claim", [10_000, 2**28, 2**32 - 1])
def test_a_snappy_block_cannot_claim_too_much(claim: int) -> None:
    size = bytearray()
    while claim > 127:
        size.append(claim & 127 | 128)
        claim >>= 7
    size.append(claim)
    tracemalloc.start()
    try:
        with pytest.raises(CorruptRecordError):
            decompress(SNAPPY, bytes(size) + b"\x04ab")
        assert tracemalloc.get_traced_memory()[1] < MEGABYTE
    finally:
        tracemalloc.stop()


def test_snappy_is_framed_in_blocks_as_xerial_does() -> None:
    data = TEXT[:70_000]
    stream = compress(SNAPPY, data)
    assert stream[:16] == b"\x82SNAPPY\x00\x00\x00\x00\x01\x00\x00\x00\x01"
    ends = xerial_blocks(stream)
    blocks = [snappy.uncompress(stream[start + 4 : end]) for start, end in itertools.pairwise(ends)]
    assert [len(block) for block in blocks] == [32768, 32768, 4464]
    assert b"".join(blocks) == data


@pytest.mark.parametrize("size", [-1, -(2**31), 2**31 - 1, 12])
def test_a_xerial_block_with_a_false_size(size: int) -> None:
    stream = compress(SNAPPY, b"") + struct.pack(">i", size) + snappy.compress(b"value")
    with pytest.raises(CorruptRecordError, match=f"claims {size} bytes"):
        decompress(SNAPPY, stream)


def test_lz4_frames_are_those_that_java_reads() -> None:
    stream = compress(LZ4, TEXT)
    info = lz4.frame.get_frame_info(stream)
    assert info["block_size"] == 64 * 1024
    assert not info["block_linked"]
    assert not info["content_checksum"]
    assert not info["block_checksum"]
    assert info["content_size"] == 0
    chance = random.Random(1)
    words = b" ".join(chance.choices(TEXT[:45].split(), k=5000))
    assert len(compress(LZ4, words, 12)) < len(compress(LZ4, words, 9)) == len(compress(LZ4, words))
