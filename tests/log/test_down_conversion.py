"""Slices of segments in older formats: the size that is announced, pieces, padding, and what can't be converted."""

from __future__ import annotations

import asyncio
import os
import struct
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest
from tests.log.conftest import NOW_MS
from tests.log.test_old_formats import mixed
from tests.records.test_message_set import decode_set

from ottla_broker.fetch.conversions import Conversions
from ottla_broker.fetch.converted_records import ConvertedRecords
from ottla_broker.log.config import LogConfig
from ottla_broker.log.down_conversion import CHUNK_BYTES, NO_RECORDS, DownConversion
from ottla_broker.log.files import Files, FileSlice
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.compression import GZIP, ZSTD
from ottla_protocol.records.control import encode_transaction_marker
from ottla_protocol.records.down_conversion import UnconvertibleError
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import encode_batch

MARKER = bytes(
    encode_transaction_marker(
        commit=True, coordinator_epoch=0, producer_id=7, producer_epoch=0, timestamp_ms=NOW_MS, base_offset=5
    )
)
MOST = LogConfig().max_repacked_bytes
Slice = Callable[..., FileSlice]


def batch(count: int = 3, first: int = 0, size: int = 10, codec: int = 0) -> bytes:
    rows = [(NOW_MS + n, b"k", bytes(size), ()) for n in range(count)]
    return bytes(encode_batch(rows, base_offset=first, codec=codec))


@pytest.fixture
def slice_of(tmp_path: Path) -> Slice:
    files = Files(8)

    def make(data: bytes, before: int = 100) -> FileSlice:
        path = tmp_path / "log"
        path.write_bytes(bytes(before) + data + b"more")
        return FileSlice(files.file(str(path)), before, len(data))

    return make


def no_pause() -> None:
    pass


def convert(conversion: DownConversion) -> tuple[int, bytes]:
    """The size that is announced, and all that comes."""
    size, data = conversion.first(no_pause)
    while piece := conversion.following(no_pause):
        data += piece
    return size, data


@pytest.mark.parametrize("magic", [0, 1])
def test_all_formats(slice_of: Slice, magic: int) -> None:
    data = b"".join(mixed())
    size, converted = convert(DownConversion(slice_of(data), magic, 0, MOST))
    assert size == len(data)
    assert [record.offset for record in decode_set(converted)] == list(range(35))
    assert {header.magic for _, header in iter_headers(converted)} == ({0} if magic == 0 else {0, 1})


def test_the_size_that_is_announced(slice_of: Slice) -> None:
    few = batch(3)
    # The first batch converted, or everything as it is.
    assert DownConversion(slice_of(few), 1, 0, MOST).first(no_pause)[0] == 3 * 45
    assert DownConversion(slice_of(few * 10), 1, 0, MOST).first(no_pause)[0] == 10 * len(few)
    assert DownConversion(slice_of(few + few[:-1]), 1, 0, MOST).first(no_pause)[0] == 2 * len(few) - 1
    # Control batches go, but whatever comes behind them counts.
    assert DownConversion(slice_of(MARKER + few), 1, 0, MOST).first(no_pause)[0] == len(MARKER) + len(few)
    assert DownConversion(slice_of(MARKER * 3), 1, 0, MOST).first(no_pause) == (NO_RECORDS, b"")
    # All records of it lie before the offset.
    assert DownConversion(slice_of(few), 1, 3, MOST).first(no_pause) == (NO_RECORDS, b"")
    for nothing in (b"", few[:5], few[:16], few[:-1]):
        assert DownConversion(slice_of(nothing), 1, 0, MOST).first(no_pause) == (0, b"")


def test_pieces(slice_of: Slice) -> None:
    batches = [batch(100, n * 100, 90) for n in range(100)]
    data = b"".join(batches)
    assert len(data) > 3 * CHUNK_BYTES
    conversion = DownConversion(slice_of(data), 1, 150, MOST)
    size, first = conversion.first(no_pause)
    assert size == len(data)
    assert [record.offset for record in decode_set(first)] == list(range(150, 200))
    pieces = []
    while piece := conversion.following(no_pause):
        pieces.append(piece)
        assert len(piece) < 2 * CHUNK_BYTES
    assert len(pieces) > len(data) // (2 * CHUNK_BYTES)
    assert [record.offset for record in decode_set(b"".join(pieces))] == list(range(200, 10_000))
    conversion.rewind()
    assert convert(conversion) == (size, first + b"".join(pieces))


def test_a_batch_larger_than_a_piece(slice_of: Slice) -> None:
    large = batch(1000, 3, 2 * CHUNK_BYTES // 1000)
    for data in (large, batch(3) + large + batch(2, 1003)):
        offsets = [
            record.offset for record in decode_set(convert(DownConversion(slice_of(data), 1, 0, MOST))[1])
        ]
        assert offsets == ([*range(1005)] if data is not large else [*range(3, 1003)])


def broken(first: int, codec: int) -> bytes:
    data = bytearray(batch(3, first, codec=codec))
    data[61:] = b"\xff" * (len(data) - 61)
    return bytes(data)


@pytest.mark.parametrize(
    ("bad", "error"),
    [
        (batch(3, 3, codec=ZSTD), UnconvertibleError),
        (broken(3, 0), CorruptRecordError),
        (broken(3, GZIP), CorruptRecordError),
        (bytes(100), CorruptRecordError),
        (bytes(8) + struct.pack(">i", 90) + bytes(4) + b"\x09" + bytes(90), CorruptRecordError),
    ],
    ids=["zstd", "plain", "gzip", "zeros", "magic"],
)
def test_what_precedes_a_batch_that_can_not_be_converted_is_sent(
    slice_of: Slice, bad: bytes, error: type[Exception]
) -> None:
    with pytest.raises(error):
        DownConversion(slice_of(bad), 1, 0, MOST).first(no_pause)
    data = batch(3) + batch(2, 3) + bad + batch(3, 5)
    size, converted = convert(DownConversion(slice_of(data), 1, 0, MOST))
    assert size == len(data)
    assert [record.offset for record in decode_set(converted)] == [0, 1, 2, 3, 4]


def test_a_bomb(slice_of: Slice) -> None:
    bomb = batch(1, size=10_000_000, codec=GZIP)
    with pytest.raises(CorruptRecordError):
        DownConversion(slice_of(bomb), 1, 0, 1 << 20).first(no_pause)


# The part of a response.


@pytest.fixture
async def conversions() -> AsyncIterator[Conversions]:
    made = Conversions()
    yield made
    made.close()


async def take_all(part: ConvertedRecords) -> list[bytes]:
    pieces = []
    while len(part):
        ready = asyncio.Event()
        piece = part.take(ready.set)
        if piece is None:
            await asyncio.wait_for(ready.wait(), 60)
            piece = part.take(ready.set)
            assert piece is not None
        assert len(piece)
        pieces.append(bytes(piece))
    return pieces


@pytest.mark.parametrize("kept", [True, False])
async def test_a_part_has_the_size_that_was_announced(
    slice_of: Slice, conversions: Conversions, kept: bool
) -> None:
    for data in (
        b"".join(batch(100, n * 100, 90) for n in range(100)),  # grows
        bytes(encode_batch([(NOW_MS, None, b"v", (("h", bytes(500)),))] * 100)) * 20,  # shrinks
        batch(5),
        MARKER,
    ):
        conversion = DownConversion(slice_of(data), 1, 0, MOST)
        size, first = conversion.first(no_pause)
        _, wanted = convert(DownConversion(slice_of(data), 1, 0, MOST))
        if not kept:
            conversion.rewind()
        part = ConvertedRecords(conversions, "client", conversion, size, first if kept else None)
        got = b"".join(await take_all(part))
        assert len(got) == size
        assert got[: len(wanted)] == wanted[:size]
        padding = got[len(wanted) :]
        if padding:
            offset, claimed = struct.unpack(">qi", padding[:12].ljust(12, b"\0"))
            assert offset == -1
            assert claimed > len(padding)
            assert not any(padding[12:])


async def test_padding_of_megabytes_comes_in_pieces(slice_of: Slice, conversions: Conversions) -> None:
    large = encode_batch([(NOW_MS, None, os.urandom(3_000_000), ())], base_offset=3, codec=ZSTD)
    data = batch(3) + large
    conversion = DownConversion(slice_of(data), 1, 0, MOST)
    size, first = conversion.first(no_pause)
    pieces = await take_all(ConvertedRecords(conversions, "client", conversion, size, first))
    assert sum(map(len, pieces)) == size
    assert len(pieces) > 10
    assert max(map(len, pieces)) <= CHUNK_BYTES


async def test_a_part_that_is_closed(slice_of: Slice, conversions: Conversions) -> None:
    conversion = DownConversion(slice_of(b"".join(batch(100, n * 100, 90) for n in range(100))), 1, 0, MOST)
    part = ConvertedRecords(conversions, "client", conversion, 1_000_000, None)
    called: list[Any] = []
    assert part.take(lambda: called.append(1)) is None
    part.close()
    await asyncio.sleep(0.05)
    assert not called


async def test_a_file_that_can_not_be_read(
    slice_of: Slice, conversions: Conversions, monkeypatch: pytest.MonkeyPatch
) -> None:
    data = batch(3) * 10
    conversion = DownConversion(slice_of(data), 1, 0, MOST)
    size, first = conversion.first(no_pause)

    def fail(*_: object) -> bytes:
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(FileSlice, "read_at", fail)
    pieces = await take_all(ConvertedRecords(conversions, "client", conversion, size, first))
    assert pieces[0] == first
    assert sum(map(len, pieces)) == size
    assert pieces[1][:8] == b"\xff" * 8
