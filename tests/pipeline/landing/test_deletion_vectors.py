"""Deletion vectors whose bytes or sizes lie are refused, before they take memory or delete other rows."""

from __future__ import annotations

import base64
import struct
import tracemalloc
import zlib
from typing import Any

import numpy as np
import pytest

from ottla_pipeline.landing.tables.deletion_vectors import BadVector, Descriptor

ROWS = 100_000


def bitmaps(*each: bytes, keys: tuple[int, ...] = (0,), count: int | None = None) -> bytes:
    found = struct.pack("<iq", 1681511377, len(each) if count is None else count)
    return found + b"".join(struct.pack("<I", key) + one for key, one in zip(keys, each, strict=True))


def plain(*values: int, fewer: int | None = None) -> bytes:
    head = struct.pack("<IIHHI", 12346, 1, 0, len(values) - 1 if fewer is None else fewer, 0)
    return head + struct.pack(f"<{len(values)}H", *values)


def runs(*pairs: tuple[int, int], fewer: int) -> bytes:
    head = struct.pack("<IBHH", 12347, 1, 0, fewer)
    return head + struct.pack("<H", len(pairs)) + b"".join(struct.pack("<HH", *one) for one in pairs)


def many_runs(containers: int) -> bytes:
    """Six bytes for each 65,536 rows, and their heads."""
    head = struct.pack("<I", 12347 | containers - 1 << 16) + b"\xff" * ((containers + 7) // 8)
    heads = b"".join(struct.pack("<HH", key, 0xFFFF) for key in range(containers))
    return (
        head
        + heads
        + bytes(4 * containers * (containers >= 4))
        + struct.pack("<HHH", 1, 0, 0xFFFF) * containers
    )


def read(data: bytes, cardinality: int, of: int = ROWS) -> list[int]:
    file = struct.pack(">I", len(data)) + data + struct.pack(">I", zlib.crc32(data))
    found: list[int] = Descriptor("p", "x", 0, len(data), cardinality).rows(of, file).tolist()
    return found


def test_sound_ones_are_read() -> None:
    assert read(bitmaps(plain(1, 5, 65535)), 3) == [1, 5, 65535]
    assert read(bitmaps(runs((3, 2), (10, 0), fewer=3)), 4) == [3, 4, 5, 10]
    assert read(bitmaps(plain(7), plain(0), keys=(0, 1)), 2, 1 << 33) == [7, 1 << 32]
    assert len(read(bitmaps(many_runs(2)), 131072, 131072)) == 131072
    bits = np.packbits(np.arange(65536) % 2 == 0).tobytes()
    assert len(read(bitmaps(struct.pack("<IIHHI", 12346, 1, 0, 32767, 0) + bits), 32768)) == 32768


def test_vectors_in_the_log_itself_and_bad_ones() -> None:
    inline = "^Bg9^0rr910000000000iXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L"
    assert Descriptor("i", inline, None, 44, 6).rows(ROWS).tolist() == [3, 4, 7, 11, 18, 29]
    with pytest.raises(BadVector, match="more rows than the log says"):
        Descriptor("i", inline, None, 44, 5).rows(ROWS)
    with pytest.raises(BadVector, match="magic number"):  # Of the form before, which Delta's protocol shows.
        Descriptor("i", "wi5b=000010000siXQKl0rr91000f55c8Xg0@@D72lkbi5=-{L", None, 40, 6).rows(ROWS)
    for size in (0, 4, 11, 20, 43):
        with pytest.raises(BadVector):
            Descriptor("i", inline, None, size, 6).rows(ROWS)
    assert Descriptor("u", "ab^-aqEH.-t@S}K{vb[*k^", 4, 40, 6).path == (
        "ab/deletion_vector_d2c639aa-8816-431a-aaf6-d3fe2512ff61.bin"
    )
    with pytest.raises(BadVector):
        _ = Descriptor("x", inline, None, 44, 6).path
    with pytest.raises(BadVector, match="bytes"):
        _ = Descriptor("u", inline, 0, 1 << 40, 6).bytes_in_file


@pytest.mark.parametrize(
    ("data", "cardinality", "what"),
    [
        (bitmaps(plain(1)), 2, "has 1 rows, and the log says 2"),
        (bitmaps(plain(1)), ROWS + 1, "of a file with 100000"),
        (bitmaps(plain(5, 1)), 2, "or one twice"),
        (bitmaps(plain(5, 5)), 2, "or one twice"),
        (bitmaps(plain(1), keys=(1,)), 1, "deletes row 4294967297"),
        (bitmaps(plain(1), plain(1), keys=(0, 0)), 2, "or one twice"),
        (bitmaps(plain(1), keys=(0xFFFFFFFF,)), 1, "key"),
        (bitmaps(plain(1), count=1 << 62), 1, "can't be decoded"),
        (bitmaps(plain(1, fewer=9)), 10, "can't be decoded"),
        (bitmaps(runs(*[(0, 65535)] * 30_000, fewer=65535)), 65536, "runs"),
        (bitmaps(many_runs(65536)), ROWS, "more rows than the log says"),
        (
            bitmaps(struct.pack("<IIHHI", 12346, 1, 0, 4096, 0) + b"\xff" * 8192),
            4097,
            "a bitmap has 65536 rows",
        ),
        (bitmaps(struct.pack("<II", 12346, 1 << 31)), 1, "containers"),
        (b"\0" * 12, 0, "magic number"),
        (b"", 0, "can't be decoded"),
    ],
)
def test_lies_are_refused(data: bytes, cardinality: int, what: str) -> None:
    tracemalloc.start()
    try:
        with pytest.raises(BadVector, match=what):
            read(data, cardinality)
        assert tracemalloc.get_traced_memory()[1] < (8 << 20) + 4 * len(data)
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize(
    "wrong",
    [
        {"storageType": None},
        {"pathOrInlineDv": 7},
        {"sizeInBytes": -1},
        {"sizeInBytes": "8"},
        {"cardinality": 1.5},
        {"offset": -1},
        {"offset": "1"},
    ],
)
def test_a_descriptor_of_other_types_is_refused(wrong: dict[str, Any]) -> None:
    sound = {"storageType": "u", "pathOrInlineDv": "0" * 20, "sizeInBytes": 8, "cardinality": 1}
    assert Descriptor.from_json(sound).path == "deletion_vector_00000000-0000-0000-0000-000000000000.bin"
    with pytest.raises(BadVector, match="the log has a deletion vector that can't be read"):
        Descriptor.from_json(sound | wrong)


def test_places_that_are_none_are_refused() -> None:
    for storage, where in (("x", "0" * 20), ("u", "0" * 19), ("u", "\u00e4" * 20), ("u", "~" * 20)):
        with pytest.raises(BadVector, match="its place"):
            assert Descriptor(storage, where, 0, 8, 1).path
    with pytest.raises(BadVector, match="its place"):
        Descriptor("i", "\u00e4", None, 8, 1).rows(10)
    inline = base64.b85encode(bitmaps(plain(1)) + b"\0\0").decode()
    with pytest.raises(BadVector):
        Descriptor("i", inline[:5], None, 1 << 40, 1).rows(10)
