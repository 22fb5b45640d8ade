"""``ottla log verify``: no findings in a sound folder, a clear one for each kind of damage."""

from __future__ import annotations

import os
from pathlib import Path
from struct import pack

import pytest

from ottla_broker.log.verify import Finding, Tally
from ottla_broker.tools.verify import verify


def findings(path: Path) -> list[Finding]:
    tally = Tally()
    found = list(verify(str(path), tally))
    assert tally.findings == len(found)
    return found


def problems(path: Path) -> list[str]:
    return [each.problem for each in findings(path)]


def change(path: Path, at: int, data: bytes) -> None:
    raw = bytearray(path.read_bytes())
    at %= len(raw)
    raw[at : at + len(data)] = data
    path.write_bytes(raw)


def test_a_sound_folder(data: Path) -> None:
    tally = Tally()
    assert list(verify(str(data), tally)) == []
    assert (tally.batches, tally.findings) == (14, 0)
    assert tally.files > 20
    assert tally.bytes > 2000


@pytest.mark.parametrize("kind", ["log", "index", "timeindex", "txnindex", "snapshot"])
def test_a_single_sound_file(data: Path, kind: str) -> None:
    assert (
        findings(
            data / "flights-0" / f"00000000000000000012.{kind}"
            if kind != "snapshot"
            else data / "flights-0" / "00000000000000000008.snapshot"
        )
        == []
    )


def test_a_flipped_bit(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000008.log"
    change(path, -1, b"\x55")
    (found,) = findings(data / "flights-0")
    assert found.file == str(path)
    assert found.position is not None
    assert found.position > 0
    assert found.problem == "the checksum of the batch with offsets 11 to 11 does not match its bytes"
    assert str(found) == f"{path} at byte {found.position}: {found.problem}"


def test_a_torn_end(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000012.log"
    os.truncate(path, path.stat().st_size - 1)
    assert any("ends in the batch" in each for each in problems(path))


def test_garbage_between_batches(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.log"
    change(path, 8, pack(">i", 3))
    (problem, *_) = problems(path)
    assert problem.startswith("no batch can be read here")


def test_offsets_that_go_back(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.log"
    change(path, 0, pack(">q", 9))
    found = problems(data / "flights-0")
    assert "offset 5 where 10 or more has to follow" in found


def test_segments_that_overlap(data: Path) -> None:
    folder = data / "flights-0"
    (folder / "00000000000000000010.log").write_bytes((folder / "00000000000000000012.log").read_bytes())
    assert "the segment before this one ends at offset 12" in problems(folder)


def test_a_preallocated_segment_is_sound(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000012.log"
    path.write_bytes(path.read_bytes() + bytes(10_000))
    assert findings(path) == []
    index = path.with_suffix(".index")
    index.write_bytes(index.read_bytes() + bytes(800))
    assert findings(index) == []


def test_an_index_that_points_nowhere(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.index"
    change(path, 4, pack(">i", 17))
    assert problems(path) == ["points at position 17, where no batch begins"]
    change(path, 0, pack(">i", 300))
    assert any(
        "offset 304 is not the last one" in each or "where no batch begins" in each for each in problems(path)
    )


def test_an_index_out_of_order(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.index"
    raw = path.read_bytes()
    path.write_bytes(raw + raw[:8])
    assert any("does not grow" in each for each in problems(path))
    path.write_bytes(raw + b"abc")
    assert problems(path) == ["3 bytes at the end are not a whole entry of 8"]


def test_a_time_index_that_lies(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000004.timeindex"
    raw = path.read_bytes()
    change(path, len(raw) - 12, pack(">q", 1_800_000_000_000))
    assert any("says offset 7 has timestamp 1800000000000" in each for each in problems(path))
    path.write_bytes(raw[-12:] + raw[-12:])
    assert any("does not grow" in each for each in problems(path))
    path.write_bytes(raw[:-4] + pack(">i", 100))
    assert "offset 104 is in no batch" in problems(path)


def test_an_index_without_its_segment(data: Path) -> None:
    (data / "flights-0" / "00000000000000000004.log").unlink()
    found = problems(data / "flights-0")
    assert found.count("an index without its segment") == 2
    assert problems(data / "flights-0" / "00000000000000000004.index") == ["an index without its segment"]


def test_a_transaction_index_that_does_not_fit(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000012.txnindex"
    change(path, 18, pack(">q", 99))
    assert problems(path) == ["the marker at offset 99 is not in this segment"]
    change(path, 10, pack(">q", 100))
    assert any("transaction 100 to 99" in each for each in problems(path))
    path.write_bytes(b"x")
    assert any("whole number of entries" in each for each in problems(path))


def test_a_snapshot_that_is_damaged_or_ahead(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000008.snapshot"
    early = path.with_name("00000000000000000003.snapshot")
    early.write_bytes(path.read_bytes())
    assert problems(early) == ["producer 7 has a batch at 7, not below 3"]
    change(path, -1, b"\x55")
    assert problems(path) == ["the checksum does not match"]


def test_leader_epochs_that_contradict_the_batches(data: Path) -> None:
    path = data / "flights-0" / "leader-epoch-checkpoint"
    path.write_bytes(b"0\n2\n0 0\n1 7\n")
    assert problems(data / "flights-0") == ["says epoch 0 for offset 5, whose batch has 1"]
    path.write_bytes(b"0\n2\n1 5\n0 7\n")
    assert any("does not grow" in each for each in problems(path))
    path.write_bytes(b"0\n2\n1 5\n")
    assert any("announces" in each for each in problems(path))


def test_leader_epochs_that_are_not_written_yet_are_no_finding(data: Path) -> None:
    (data / "flights-0" / "leader-epoch-checkpoint").write_bytes(b"0\n1\n0 0\n")
    assert findings(data / "flights-0") == []


def test_epochs_that_go_back_in_the_log(data: Path) -> None:
    path = data / "flights-0" / "00000000000000000008.log"
    change(path, 12, pack(">i", 0))
    assert "leader epoch 0 at offset 8 behind epoch 1" in problems(data / "flights-0")


@pytest.mark.parametrize(
    ("name", "content", "problem"),
    [
        ("cleaner-offset-checkpoint", b"1\n0\n", "version"),
        ("recovery-point-offset-checkpoint", b"0\n1\nt 0 -5\n", "offset -5 for t-0"),
        ("replication-offset-checkpoint", b"0\n1\nt 0\n", "2 fields"),
        ("flights-0/partition.metadata", b"version: 0\ntopic_id: short\n", "topic id"),
        ("meta.properties", b"version=7\nbroker.id=one\n", "version '7'"),
        ("ottla-store.journal", b"nonsense that is long enough\n", "journal"),
    ],
)
def test_small_files(data: Path, name: str, content: bytes, problem: str) -> None:
    (data / name).write_bytes(content)
    assert any(problem in each for each in problems(data)), problems(data)
    assert any(problem in each for each in problems(data / name))


def test_a_torn_frame_of_the_journal(data: Path) -> None:
    path = data / "ottla-store.journal"
    path.write_bytes(path.read_bytes() + b"\x00\x00\x00")
    (found,) = findings(data)
    assert found.problem == "3 bytes of an incomplete frame; the next start removes them"


def test_a_foreign_path(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert problems(tmp_path) == []
    assert problems(tmp_path / "notes.txt") == ["is not a file of a log or a store"]
    assert problems(tmp_path / "missing.log") == ["does not exist"]
    assert problems(tmp_path / "missing") == ["does not exist"]
