"""The index files, against bytes written by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log.files import CorruptFileError, Files
from ottla_broker.log.index import OffsetIndex, TimeIndex


def test_an_offset_index_is_pairs_of_int32(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    index = OffsetIndex(Files(), str(path), new=True)
    index.add(7, 4200)
    index.add(2**31 - 1, 9000)
    index.write()
    assert path.read_bytes() == bytes.fromhex("00000007 00001068 7fffffff 00002328")
    index.add(2**31 - 1, 9001)
    index.write()
    assert path.stat().st_size == 24


def test_a_time_index_is_int64_and_int32(tmp_path: Path) -> None:
    path = tmp_path / "0.timeindex"
    index = TimeIndex(Files(), str(path), new=True)
    index.add(1_700_000_000_123, 7)
    index.write()
    assert path.read_bytes() == bytes.fromhex("0000018bcfe5687b 00000007")
    assert index.last() == (1_700_000_000_123, 7)


@pytest.mark.parametrize("reopened_after", [0, 1, 5, 10])
def test_lookups_are_the_same_on_disk_and_in_memory(tmp_path: Path, reopened_after: int) -> None:
    files = Files()
    path = str(tmp_path / "0.index")
    index = OffsetIndex(files, path, new=True)
    for number in range(10):
        if number == reopened_after:
            index.write()
            index = OffsetIndex(files, path, new=False)
        index.add(number * 10 + 5, number * 100)
    if reopened_after == 10:
        index.seal()
    assert len(index) == 10
    assert index.floor(4) is None
    assert index.floor_position(-1) == -1
    for key in range(5, 120):
        slot = min(9, (key - 5) // 10)
        assert index.floor(key) == (slot * 10 + 5, slot * 100)
    for position in range(0, 1100, 7):
        assert index.floor_position(position) == min(9, position // 100) * 100


@pytest.mark.parametrize("written", [0, 4, 6])
def test_keeping_fewer_entries_shortens_memory_and_file(tmp_path: Path, written: int) -> None:
    files = Files()
    path = tmp_path / "0.index"
    index = OffsetIndex(files, str(path), new=True)
    for number in range(6):
        if number == written:
            index.write()
            index = OffsetIndex(files, str(path), new=False)
        index.add(number, number)
    index.keep(3)
    assert len(index) == 3
    assert index.floor(100) == (2, 2)
    index.add(50, 60)
    index.write()
    assert path.stat().st_size == 32
    assert OffsetIndex(files, str(path), new=False).floor(99) == (50, 60)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(7), "whole number"),
        (bytes.fromhex("00000005 000003e8"), "past the end"),
        (bytes.fromhex("00000005 00000010 00000000 00000000"), "out of order"),
        (bytes.fromhex("80000000 00000010"), "out of order"),
    ],
)
def test_an_index_that_contradicts_its_segment_is_found(tmp_path: Path, data: bytes, why: str) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=why):
        OffsetIndex(Files(), str(path), new=False).check(1000)


def test_an_index_that_shrinks_while_it_is_read_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "0.index"
    path.write_bytes(bytes.fromhex("00000005 00000010"))
    index = OffsetIndex(Files(), str(path), new=False)
    path.write_bytes(b"")
    with pytest.raises(CorruptFileError):
        index.floor(9)
