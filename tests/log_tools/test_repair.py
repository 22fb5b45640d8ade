"""``ottla log repair``: folders that were damaged in many ways, one at a time and at random."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path
from random import Random
from typing import Any

import pytest
from click.testing import CliRunner, Result
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.log.dump import open_segment
from ottla_broker.log.files import Files
from ottla_broker.log_cli import log
from ottla_broker.tools.repair import Summary, repair
from ottla_protocol.records.batch import CorruptRecordError
from ottla_protocol.records.formats import is_intact

FLIGHTS = "flights-0"
OFFSETS = "__consumer_offsets-0"


@pytest.fixture
def data(data: Path) -> Path:
    """The folder without the files that wait for their removal."""
    for path in data.rglob("*.deleted"):
        path.unlink()
    return data


@pytest.mark.parametrize("command", ["verify", "dump"])
def test_reading_wants_a_data_folder(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(log, [command, str(tmp_path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert f"{tmp_path}: no files of a log" in done.stderr


@pytest.mark.parametrize("command", ["repair", "compact"])
def test_a_folder_without_data_is_left_alone(command: str, tmp_path: Path) -> None:
    done = CliRunner().invoke(log, [command, str(tmp_path)])
    assert (done.exit_code, done.stdout) == (1, "")
    assert done.stderr == f"Error: {tmp_path}: no data of a broker; name the folders in log.dirs\n"
    assert not list(tmp_path.iterdir())


def run(*arguments: str | Path) -> Result:
    return CliRunner().invoke(log, ["repair", *map(str, arguments)])


def repairs(data: Path, *options: str) -> list[dict[str, Any]]:
    """What a run finds and does, with the names of files in the folder."""
    done = run(data, "--json", *options)
    found = [json.loads(line) for line in done.stdout.splitlines()]
    for each in found:
        each["file"] = each["file"].removeprefix(f"{data}/")
    return found


def findings(data: Path) -> str:
    return CliRunner().invoke(log, ["verify", str(data)]).stdout


def digest(data: Path) -> dict[str, str]:
    return {
        str(path): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in sorted(data.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def segment(data: Path, base: int, suffix: str = ".log", partition: str = FLIGHTS) -> Path:
    return data / partition / f"{base:020d}{suffix}"


def batches(data: Path, partition: str = FLIGHTS) -> list[tuple[int, int]]:
    """Base offset and CRC of each batch that a reader comes to."""
    found = []
    for path in sorted((data / partition).glob("*.log")):
        try:
            for _, header, batch in open_segment(Files(8, read_only=True), str(path)).batches():
                if is_intact(batch, 0, header):
                    found.append((header.base_offset, header.crc))
        except CorruptRecordError:
            pass
    return found


def positions(path: Path) -> list[int]:
    """Where the batches of a segment begin."""
    return [position for position, _, _ in open_segment(Files(8, read_only=True), str(path)).batches()]


def flip(path: Path, position: int) -> None:
    raw = bytearray(path.read_bytes())
    raw[position] ^= 0xFF
    path.write_bytes(raw)


def crashed(data: Path, **recovery_points: int) -> None:
    """Make the folder look like a killed broker's; everything below the recovery points is on the device."""
    (data / ".kafka_cleanshutdown").unlink()
    lines = [
        f"{name.replace('_0', '-0').rpartition('-')[0]} 0 {offset}\n"
        for name, offset in recovery_points.items()
    ]
    (data / "recovery-point-offset-checkpoint").write_text(f"0\n{len(lines)}\n{''.join(lines)}")


def test_a_sound_folder(data: Path) -> None:
    before = digest(data)
    done = run("--dry-run", data)
    assert (done.exit_code, done.stdout) == (0, "")
    assert done.stderr == "2 partitions: 0 repairs, 0 problems left; nothing was changed\n"
    done = run(data)
    assert (done.exit_code, done.stdout) == (0, "")
    assert digest(data) == before


def test_a_partition_that_was_never_written_to(data: Path) -> None:
    """It has no segment."""
    empty = data / "flights-1"
    empty.mkdir()
    shutil.copy(data / FLIGHTS / "partition.metadata", empty)
    assert repairs(data, "--dry-run") == []
    assert repairs(data) == []
    assert run(data).exit_code == 0


def test_the_dry_run_changes_nothing(data: Path) -> None:
    flip(segment(data, 12), -1)
    before = digest(data)
    done = run("--dry-run", data)
    assert done.exit_code == 1
    assert "the checksum of a batch does not match its bytes: the log is cut there" in done.stdout
    assert digest(data) == before
    done = run(data)
    assert done.exit_code == 0
    assert "the checksum of a batch does not match its bytes: the log is cut there" in done.stdout
    assert findings(data) == ""


def test_the_end_is_cut_off(data: Path) -> None:
    path = segment(data, 12)
    whole = batches(data)
    last = positions(path)[-1]
    os.truncate(path, path.stat().st_size - 1)
    found, index = repairs(data)
    assert (found["file"], found["position"]) == (f"{FLIGHTS}/{path.name}", last)
    # The transaction's marker is gone, so it is open again.
    assert (index["file"], index["action"]) == (f"{FLIGHTS}/{12:020d}.txnindex", "rebuilt from all batches")
    assert found["action"] == "the log is cut there; offset 13 is next"
    assert batches(data) == whole[:-1]
    assert findings(data) == ""
    assert repairs(data) == []


def test_damage_in_the_middle_stays_unless_it_is_to_be_dropped(data: Path) -> None:
    path = segment(data, 4)
    whole = batches(data)
    flip(path, positions(path)[1] + 70)
    (found,) = repairs(data)
    assert (found["file"], found["done"]) == (f"{FLIGHTS}/{path.name}", False)
    assert "left as it is" in found["action"]
    assert "intact batches follow; --drop-damaged takes out" in found["action"]
    lost = [each for each in whole if each not in batches(data)]
    assert len(lost) == 1

    (found,) = repairs(data, "--drop-damaged")
    assert found["action"].endswith(f"offsets {lost[0][0]} to {lost[0][0]} are lost")
    assert batches(data) == [each for each in whole if each not in lost]
    assert findings(data) == ""


def test_damage_above_the_recovery_point_ends_the_log_as_at_a_start(data: Path) -> None:
    path = segment(data, 4)
    whole = batches(data)
    flip(path, positions(path)[1] + 70)
    crashed(data, flights_0=4)
    other = data.with_name("other")
    shutil.copytree(data, other)
    (found,) = repairs(data)
    assert "the log is cut there, with" in found["action"]
    assert batches(data) == whole[: whole.index(batches(data)[-1]) + 1]
    assert not segment(data, 8).exists()
    assert (data / ".kafka_cleanshutdown").exists()
    assert findings(data) == ""
    # What follows can be kept.
    (found,) = repairs(other, "--drop-damaged")
    assert "taken out" in found["action"]
    assert len(batches(other)) == len(whole) - 1
    assert findings(other) == ""


def test_a_crash_is_recovered_from(data: Path) -> None:
    crashed(data, flights_0=8)
    path = segment(data, 12)
    path.write_bytes(path.read_bytes() + b"half a batch")
    done = run(data)
    assert done.exit_code == 0
    assert done.stderr == "2 partitions: 1 repair, 0 problems left; 2 logs read again\n"
    assert b"flights 0 14\n" in (data / "recovery-point-offset-checkpoint").read_bytes()
    assert findings(data) == ""
    assert run(data).stderr == "2 partitions: 0 repairs, 0 problems left\n"


@pytest.mark.parametrize("suffix", [".index", ".timeindex"])
@pytest.mark.parametrize("damage", ["flipped", "odd", "missing", "foreign"])
def test_indexes_are_rebuilt(data: Path, suffix: str, damage: str) -> None:
    path = segment(data, 4, suffix)
    sound = path.read_bytes()
    assert sound
    if damage == "missing":
        path.unlink()
    else:
        path.write_bytes(
            {"flipped": sound[:-1] + b"\xee", "odd": sound + b"x", "foreign": b"\x7f" * 24}[damage]
        )
    found = repairs(data)
    assert {(each["file"], each["action"]) for each in found} == {(f"{FLIGHTS}/{path.name}", "rebuilt")}
    assert path.exists()
    assert findings(data) == ""


def test_leftovers_are_removed(data: Path) -> None:
    names = [
        f"{99:020d}.log.deleted",
        f"{4:020d}.log.cleaned",
        f"{4:020d}.index.cleaned",
        "leader-epoch-checkpoint.tmp",
        f"{77:020d}.index",
        f"{77:020d}.timeindex",
        f"{77:020d}.txnindex",
    ]
    for name in names:
        (data / FLIGHTS / name).write_bytes(b"")
    (data / "replication-offset-checkpoint.tmp").write_bytes(b"")
    (data / f"gone-0.{'0' * 32}-delete").mkdir()
    found = repairs(data)
    assert {each["action"] for each in found} == {"removed"}
    assert len(found) == len(names) + 2
    assert not any((data / FLIGHTS / name).exists() for name in names)
    assert not list(data.glob("*-delete"))
    assert findings(data) == ""


def test_an_interrupted_cleaning_is_completed(data: Path) -> None:
    for suffix in (".log", ".index", ".timeindex"):
        path = segment(data, 4, suffix)
        shutil.copy(path, path.with_name(path.name + ".swap"))
    whole = batches(data)
    found = repairs(data)
    assert {each["action"] for each in found} == {"completed"}
    assert batches(data) == whole
    assert not list((data / FLIGHTS).glob("*.swap"))
    assert findings(data) == ""


EPOCHS = "leader-epoch-checkpoint"


@pytest.mark.parametrize("name", [EPOCHS, f"{14:020d}.snapshot", f"{12:020d}.txnindex"])
def test_what_is_made_from_all_batches(data: Path, name: str) -> None:
    path = data / FLIGHTS / name
    before = path.read_bytes()
    path.write_bytes(b"0\nnonsense")
    (found,) = repairs(data)
    assert (found["file"], found["action"]) == (f"{FLIGHTS}/{name}", "rebuilt from all batches")
    if name == EPOCHS:
        # The first batch has been compacted away.
        before = before.replace(b"0 0\n", b"0 1\n")
    assert path.read_bytes() == before
    assert findings(data) == ""


def test_it_waits_until_the_segments_are_sound(data: Path) -> None:
    path = segment(data, 4)
    flip(path, positions(path)[1] + 70)
    epochs = data / FLIGHTS / EPOCHS
    epochs.write_bytes(b"nonsense\nx\ny")
    found = repairs(data)
    assert [each["done"] for each in found] == [False, False]
    assert epochs.read_bytes() == b"nonsense\nx\ny"
    found = repairs(data, "--drop-damaged")
    assert [each["done"] for each in found] == [True, True]
    assert epochs.read_text() == "0\n3\n0 1\n1 6\n2 10\n"
    assert findings(data) == ""


def test_checkpoints_keep_what_can_be_read(data: Path) -> None:
    path = data / "replication-offset-checkpoint"
    path.write_bytes(path.read_bytes().replace(b"flights 0 14", b"flights 0 1x4") + b"more\n")
    (found,) = repairs(data)
    assert found["action"] == "written again with the 1 offsets in it that can be read"
    assert path.read_text() == "0\n1\n__consumer_offsets 0 3\n"


def test_the_topic_id_comes_from_the_topic_s_other_partitions(data: Path) -> None:
    path = data / FLIGHTS / "partition.metadata"
    before = path.read_bytes()
    path.write_bytes(b"version: 0\ntopic_id: ?")
    (found,) = repairs(data)
    assert found["action"] == "left as it is: the topic's id isn't known"
    (data / "flights-1").mkdir()
    (data / "flights-1" / "partition.metadata").write_bytes(before)
    (found,) = repairs(data)
    assert found["action"] == "written again with the topic's id"
    assert path.read_bytes() == before


def test_the_store(data: Path) -> None:
    path = data / "ottla-store.journal"
    whole = path.read_bytes()
    path.write_bytes(whole + b"half")
    (found,) = repairs(data)
    assert (found["position"], found["action"]) == (len(whole), "cut off")
    assert path.read_bytes() == whole
    flip(path, 30)
    (found,) = repairs(data)
    assert not found["done"]
    assert "ottla log adopt" in found["action"]


def test_meta_properties(data: Path) -> None:
    (data / "meta.properties").write_text("version=7\n")
    (found,) = repairs(data)
    assert (found["done"], found["action"]) == (False, "left as it is: restore it")


def test_the_metadata_log_of_kafka_is_left_alone(data: Path) -> None:
    (data / "__cluster_metadata-0").mkdir()
    (data / "__cluster_metadata-0" / f"{0:020d}.log").write_bytes(b"damaged")
    assert repairs(data) == []


def test_a_folder_in_use(data: Path) -> None:
    lock = Files(8).lock(str(data / ".lock"))
    try:
        done = run(data)
    finally:
        lock.close()
    assert done.exit_code == 1
    assert "is in use" in done.stderr


def _flip_bytes(data: Path, random: Random) -> None:
    path = random.choice(sorted((data / FLIGHTS).glob("*.log")))
    for _ in range(random.randrange(1, 4)):
        flip(path, random.randrange(path.stat().st_size))


def _truncate(data: Path, random: Random) -> None:
    path = random.choice(sorted((data / FLIGHTS).iterdir()))
    os.truncate(path, random.randrange(path.stat().st_size + 1))


def _overwrite(data: Path, random: Random) -> None:
    path = random.choice(sorted((data / FLIGHTS).iterdir()))
    raw = bytearray(path.read_bytes())
    at = random.randrange(len(raw) + 1)
    raw[at : at + random.randrange(1, 200)] = random.randbytes(random.randrange(200))
    path.write_bytes(raw)


def _remove(data: Path, random: Random) -> None:
    random.choice([path for path in sorted((data / FLIGHTS).iterdir()) if path.suffix != ".log"]).unlink()


def _zeros(data: Path, random: Random) -> None:
    path = random.choice(sorted((data / FLIGHTS).glob("*.log")))
    path.write_bytes(path.read_bytes() + bytes(random.randrange(1, 5000)))


def _garble(data: Path, random: Random) -> None:
    path = random.choice([path for path in sorted(data.iterdir()) if path.name.endswith("checkpoint")])
    path.write_bytes(random.randbytes(random.randrange(60)))


def _crash(data: Path, random: Random) -> None:
    (data / ".kafka_cleanshutdown").unlink(missing_ok=True)


DAMAGES: list[Callable[[Path, Random], None]] = [
    _flip_bytes,
    _truncate,
    _overwrite,
    _remove,
    _zeros,
    _garble,
    _crash,
]


@settings(max_examples=examples(25), deadline=None)
@example(seed=164, count=3)  # One segment with a damaged batch to take out, and then an end to cut off.
@given(seed=st.integers(0, 2**32), count=st.integers(1, 4))
def test_any_damage(made: Path, tmp_path_factory: pytest.TempPathFactory, seed: int, count: int) -> None:
    """A dry run changes nothing; a repair never fails, and leaves what it says; no batch is lost that can be kept."""
    random = Random(seed)
    data = Path(shutil.copytree(made, tmp_path_factory.mktemp("random") / "data"))
    for _ in range(count):
        random.choice(DAMAGES)(data, random)
    there = batches_anywhere(data)
    before = digest(data)
    planned = list(repair([str(data)], Summary(), dry_run=True, drop_damaged=True))
    assert digest(data) == before
    done = list(repair([str(data)], Summary(), drop_damaged=True))
    assert [each for each in done if each.done] == [each for each in planned if each.done]
    # A leader epoch is outside the checksum: that one is wrong can only be seen by the others.
    for each in done:
        assert each.done or " epoch " in each.problem or each.file.endswith("metadata"), done
    assert set(batches(data)) == there
    again = list(repair([str(data)], Summary(), dry_run=True, drop_damaged=True))
    assert set(again) <= {each for each in done if not each.done}
    shutil.rmtree(data)


def batches_anywhere(data: Path) -> set[tuple[int, int]]:
    """Base offset and CRC of each intact batch in a folder of which nothing else is known, in order."""
    from ottla_broker.log.damage import stretches

    found = set()
    paths = sorted((data / FLIGHTS).glob("*.log"))
    for path, following in zip_longest(paths, paths[1:]):
        opened = open_segment(Files(8, read_only=True), str(path))
        for stretch in stretches(opened, None if following is None else int(following.stem)):
            if stretch.is_intact:
                for _, header, _ in opened.batches(stretch.position, stretch.end):
                    found.add((header.base_offset, header.crc))
    return found
