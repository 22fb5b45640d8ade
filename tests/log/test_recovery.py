"""Opening a folder after a stop of any kind, one test per failure."""

from __future__ import annotations

from pathlib import Path

import pytest

from ottla_broker.log.log import Log
from ottla_protocol.errors import KafkaError

from .batches import batch
from .conftest import NOW_MS, OpenLog

SMALL = {"segment_bytes": 400, "index_interval_bytes": 100}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return tmp_path / "flights-0"


def fill(log: Log, count: int = 20) -> Log:
    for _ in range(count):
        log.append(batch(2), leader_epoch=3, now_ms=NOW_MS, from_client=True)
    return log


def contents(log: Log) -> bytes:
    return b"".join(map(bytes, log.reader.scan_batches(0)))


def segment_files(folder: Path, kind: str = ".log") -> list[Path]:
    return sorted(folder.glob(f"*{kind}"))


def damage(path: Path, position: int, data: bytes) -> None:
    content = bytearray(path.read_bytes())
    content[position : position + len(data)] = data
    path.write_bytes(content)


SIZE = len(batch(2))


@pytest.mark.parametrize(
    ("tail", "what"),
    [
        (b"\0" * 300, "a block of zeros"),
        (b"\xff" * 300, "a block of ones"),
        (bytes(range(256)), "nonsense"),
        (bytes(batch(2))[:-1], "a batch cut short"),
        (bytes(batch(2))[:30], "a header cut short"),
        (b"\0" * 5, "less than a header"),
        (bytes(batch(2, base_offset=40))[:-1] + b"?", "a batch with a wrong checksum"),
        (bytes(batch(2, base_offset=3)), "a batch with an old offset"),
        (bytes(batch(1, base_offset=2**33)), "a batch with an offset that does not fit"),
    ],
)
def test_garbage_after_the_end_is_truncated(open_log: OpenLog, folder: Path, tail: bytes, what: str) -> None:
    before = contents(fill(open_log()))
    with open(folder / "00000000000000000000.log", "ab") as stream:
        stream.write(tail)
    log = open_log()
    assert log.log_end_offset == 40, what
    assert contents(log) == before
    assert log.append(batch(1), leader_epoch=3, now_ms=NOW_MS, from_client=True).first_offset == 40


@pytest.mark.parametrize("lost", [1, SIZE - 1, SIZE, SIZE + 1, SIZE * 20])
def test_blocks_lost_at_the_end(open_log: OpenLog, folder: Path, lost: int) -> None:
    before = contents(fill(open_log()))
    path = folder / "00000000000000000000.log"
    path.write_bytes(before[: len(before) - lost])
    log = open_log()
    assert log.log_end_offset == (len(before) - lost) // SIZE * 2
    assert before.startswith(contents(log))
    assert path.stat().st_size == log.size


def test_damage_in_the_middle_removes_everything_after_it(open_log: OpenLog, folder: Path) -> None:
    before = contents(fill(open_log(**SMALL)))
    files = segment_files(folder)
    assert len(files) > 3
    damage(files[1], SIZE + 70, b"?")
    log = open_log(**SMALL)
    assert len(log.segments) == 2
    assert log.log_end_offset == log.segments[1].base_offset + 2
    assert before.startswith(contents(log))
    assert segment_files(folder) == files[:2]
    assert segment_files(folder, ".index") == [path.with_suffix(".index") for path in files[:2]]
    assert log.epoch_end_offset(3) == (3, log.log_end_offset)


def test_segments_below_the_recovery_point_are_not_scanned(open_log: OpenLog, folder: Path) -> None:
    fill(open_log(**SMALL))
    files = segment_files(folder)
    damage(files[0], 70, b"?")
    recovery_point = int(files[1].stem)
    assert open_log(**SMALL, recovery_point=recovery_point).log_end_offset == 40
    assert open_log(**SMALL, recovery_point=recovery_point - 1).log_end_offset == 0


def test_the_recovery_point_is_never_above_the_end(open_log: OpenLog) -> None:
    fill(open_log())
    assert open_log(recovery_point=100).recovery_point == 40
    assert open_log(recovery_point=10).recovery_point == 10


def test_indexes_are_rebuilt_as_they_were(open_log: OpenLog, folder: Path) -> None:
    fill(open_log(**SMALL)).close()
    kinds = (".index", ".timeindex")
    before = {path: path.read_bytes() for kind in kinds for path in segment_files(folder, kind)}
    assert any(before.values())
    for path in before:
        path.write_bytes(b"\0" * 10_000)
    log = open_log(**SMALL)
    log.open()
    log.close()
    assert {path: path.read_bytes() for path in before} == before


@pytest.mark.parametrize("kind", [".index", ".timeindex"])
@pytest.mark.parametrize("how", ["missing", "short", "wild"])
def test_a_lost_index_is_rebuilt_after_a_clean_stop_too(
    open_log: OpenLog, folder: Path, kind: str, how: str
) -> None:
    log = fill(open_log(**SMALL))
    log.close()
    before = {path: path.read_bytes() for path in segment_files(folder, kind)}
    for path in before:
        if how == "missing":
            path.unlink()
        else:
            path.write_bytes(b"\x7f" * (5 if how == "short" else 24))
    again = open_log(**SMALL, clean=True, recovery_point=40)
    assert again.log_end_offset == 40
    assert again.reader.offset_for_timestamp(NOW_MS) == (0, NOW_MS, 3)
    assert contents(again) == contents(log)
    again.close()
    assert {path: path.read_bytes() for path in before} == before


def test_an_index_without_its_segment_is_removed(open_log: OpenLog, folder: Path) -> None:
    fill(open_log()).close()
    for kind in (".index", ".timeindex", ".txnindex"):
        (folder / f"00000000000000000090{kind}").write_bytes(b"")
    assert open_log(clean=True, recovery_point=40).log_end_offset == 40
    assert not list(folder.glob("00000000000000000090*"))


def test_files_waiting_for_removal_are_removed(open_log: OpenLog, folder: Path) -> None:
    fill(open_log()).close()
    leftovers = [
        "00000000000000000007.log.deleted",
        "00000000000000000007.index.deleted",
        "00000000000000000000.log.cleaned",
        "00000000000000000000.timeindex.cleaned",
        "leader-epoch-checkpoint.tmp",
    ]
    for name in leftovers:
        (folder / name).write_bytes(b"x")
    assert open_log(clean=True, recovery_point=40).log_end_offset == 40
    assert not [name for name in leftovers if (folder / name).exists()]


def compacted(open_log: OpenLog, folder: Path) -> tuple[list[Path], bytes]:
    """A log's segment files, and the first two compacted."""
    fill(open_log(**SMALL)).close()
    files = segment_files(folder)
    merged = files[0].read_bytes() + files[1].read_bytes()
    return files, merged


def test_a_swap_that_was_interrupted_is_finished(open_log: OpenLog, folder: Path) -> None:
    files, merged = compacted(open_log, folder)
    before = b"".join(path.read_bytes() for path in files)
    (folder / (files[0].name + ".swap")).write_bytes(merged)
    (folder / (files[0].stem + ".index.swap")).write_bytes(b"")
    (folder / (files[0].stem + ".timeindex.swap")).write_bytes(b"")
    log = open_log(clean=True, recovery_point=40, **SMALL)
    assert log.log_end_offset == 40
    assert segment_files(folder) == [files[0], *files[2:]]
    assert contents(log) == before
    assert not list(folder.glob("*.swap"))


def test_a_swap_interrupted_after_removing_the_old_segments_is_finished(
    open_log: OpenLog, folder: Path
) -> None:
    files, merged = compacted(open_log, folder)
    before = b"".join(path.read_bytes() for path in files)
    (folder / (files[0].name + ".swap")).write_bytes(merged)
    for path in files[:2]:
        for kind in (".log", ".index", ".timeindex"):
            path.with_suffix(kind).rename(path.with_suffix(kind + ".deleted"))
    log = open_log(**SMALL)
    assert contents(log) == before
    assert log.log_end_offset == 40
    assert not list(folder.glob("*.deleted"))


def test_a_split_that_was_interrupted_is_undone(open_log: OpenLog, folder: Path) -> None:
    files, merged = compacted(open_log, folder)
    before = b"".join(path.read_bytes() for path in files)
    (folder / (files[0].name + ".cleaned")).write_bytes(merged[:SIZE])
    (folder / (files[1].name + ".swap")).write_bytes(merged[:SIZE])
    log = open_log(**SMALL)
    assert contents(log) == before
    assert segment_files(folder) == files


def test_replacing_segments_survives_a_restart(open_log: OpenLog, folder: Path) -> None:
    from ottla_broker.log.segment import LogSegment

    log = fill(open_log(**SMALL))
    before = contents(log)
    old = log.segments[:2]
    new = LogSegment.create(log.environment.files, log.path, 0, log.config, suffix=".cleaned", now_ms=NOW_MS)
    for segment in old:
        for _, header, data in segment.batches():
            new.append(data, header.last_offset, header.max_timestamp, header.last_offset, 100)
    new.seal()
    log.replace_segments([new], old)
    assert contents(log) == before
    assert [segment.base_offset for segment in log.segments][:2] == [0, old[1].base_offset * 2]
    log.close()
    assert contents(open_log(**SMALL, clean=True, recovery_point=40)) == before


def test_epochs_above_the_end_are_removed_and_lost_ones_restored(open_log: OpenLog, folder: Path) -> None:
    log = open_log()
    fill(log, 2)
    log.append(batch(1), leader_epoch=8, now_ms=NOW_MS, from_client=True)
    log.close()
    assert (folder / "leader-epoch-checkpoint").read_bytes() == b"0\n2\n3 0\n8 4\n"
    (folder / "leader-epoch-checkpoint").write_bytes(b"0\n2\n3 0\n9 700\n")
    assert open_log().epoch_end_offset(9) == (-1, -1)
    (folder / "leader-epoch-checkpoint").unlink()
    assert open_log().epoch_end_offset(3) == (3, 4)
    (folder / "leader-epoch-checkpoint").write_bytes(b"nonsense\n")
    assert open_log().epochs.latest == 8


def test_a_log_that_ends_before_its_start_restarts(open_log: OpenLog, folder: Path) -> None:
    fill(open_log()).close()
    log = open_log(log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (500, 500, 0)
    assert [path.name for path in segment_files(folder)] == ["00000000000000000500.log"]


def test_an_empty_folder_is_an_empty_log(open_log: OpenLog) -> None:
    for clean in (True, False):
        log = open_log(clean=clean)
        assert (log.log_start_offset, log.log_end_offset) == (0, 0)


def test_a_clean_stop_with_a_damaged_end_is_recovered(open_log: OpenLog, folder: Path) -> None:
    fill(open_log()).close()
    with open(folder / "00000000000000000000.log", "ab") as stream:
        stream.write(b"\0" * 100)
    assert open_log(clean=True, recovery_point=40).log_end_offset == 40


def test_a_preallocated_segment_is_trimmed_and_recovered(open_log: OpenLog, folder: Path) -> None:
    path = folder / "00000000000000000000.log"
    log = fill(open_log(preallocate=True, segment_bytes=100_000), 5)
    assert path.stat().st_size == 100_000
    before = contents(log)
    again = open_log(preallocate=True, segment_bytes=100_000)
    assert contents(again) == before
    again.close()
    assert path.stat().st_size == len(before)


def test_a_folder_that_cannot_be_read_is_one_clear_error(open_log: OpenLog, folder: Path) -> None:
    log = open_log(lazy=True)
    folder.rmdir()
    with pytest.raises(KafkaError, match="flights-0: cannot be opened"):
        log.open()
