"""``ottla log compact``: folders at rest, until they are clean."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.log_tools.kafka_folders import KafkaFolders, unpacked

from ottla_broker.log.dump import open_segment
from ottla_broker.log.files import Files
from ottla_broker.log_cli import log
from ottla_protocol.records.record import decode_records


def compact(folders: KafkaFolders, *options: str) -> Result:
    return CliRunner().invoke(log, ["compact", *folders.paths, *options])


def report(folders: KafkaFolders, *options: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in compact(folders, "--json", *options).stdout.splitlines()]


def records(folders: KafkaFolders, partition: str) -> list[tuple[int, bytes | None, bytes | None]]:
    found = []
    (folder,) = (Path(each, partition) for each in folders.paths if Path(each, partition).exists())
    for path in sorted(folder.glob("*.log")):
        for _, header, batch in open_segment(Files(8, read_only=True), str(path)).batches():
            found += [
                (record.offset, record.key, record.value) for record in decode_records(batch, 0, header)
            ]
    return found


@pytest.mark.parametrize("kind", ["kraft-killed", "zookeeper-stopped"])
@pytest.mark.parametrize("adopted", [True, False])
def test_the_last_record_of_each_key_stays(tmp_path: Path, kind: str, adopted: bool) -> None:
    folders = unpacked(kind, tmp_path)
    if adopted:
        CliRunner().invoke(log, ["adopt", "--data-dir", folders.dirs, "--execute"])
    before = records(folders, "state-0")
    orders = records(folders, "orders-0")
    last = {key: (offset, key, value) for offset, key, value in before}
    found = {f"{each['topic']}-{each['partition']}": each for each in report(folders)}
    # The other partition of __transaction_state may have nothing to remove.
    assert "state-0" in found
    assert {name.rpartition("-")[0] for name in found} <= {
        "state",
        "__transaction_state",
        "__consumer_offsets",
    }
    state = found["state-0"]
    assert (state["records_before"], state["records_after"]) == (len(before), len(last))
    assert state["bytes_after"] < state["bytes_before"]
    assert records(folders, "state-0") == sorted(last.values())
    assert records(folders, "orders-0") == orders
    assert not [path for folder in folders.paths for path in Path(folder).rglob("*.deleted")]
    assert all(Path(folder, ".kafka_cleanshutdown").exists() for folder in folders.paths)
    assert CliRunner().invoke(log, ["verify", *folders.paths]).exit_code == 0
    again = compact(folders)
    assert (again.exit_code, again.stdout) == (0, "")
    assert again.stderr == "0 logs compacted, 0 could not be\n"


def test_a_dry_run_says_which_logs_and_writes_nothing(tmp_path: Path) -> None:
    folders = unpacked("kraft-killed", tmp_path)

    def files() -> dict[Path, bytes]:
        found = [path for each in folders.paths for path in Path(each).rglob("*") if path.is_file()]
        return {path: path.read_bytes() for path in found}

    for path in folders.paths:
        Path(path, ".lock").unlink(missing_ok=True)
    before = files()
    dry = compact(folders, "--dry-run")
    assert dry.exit_code == 0
    assert f"{len(dry.stdout.splitlines())} logs to compact; nothing was changed\n" == dry.stderr
    planned = report(folders, "--dry-run")
    size = sum(len(data) for path, data in before.items() if path.match("*/state-0/*.log"))
    assert {"topic": "state", "partition": 0, "bytes": size} in planned
    assert files() == before
    done = {(each["topic"], each["partition"]) for each in report(folders)}
    assert done <= {(each["topic"], each["partition"]) for each in planned}


def test_topics_that_are_named(tmp_path: Path) -> None:
    folders = unpacked("zookeeper-stopped", tmp_path)
    # Nothing is known about orders, so naming it is enough.
    (found,) = report(folders, "--topic", "orders")
    assert (found["topic"], found["partition"]) == ("orders", 1)
    CliRunner().invoke(log, ["adopt", "--data-dir", folders.dirs, "--execute"])
    done = compact(folders, "--topic", "cut")
    assert done.exit_code == 1
    assert "topic cut isn't compacted" in done.stderr
    done = compact(folders, "--topic", "nothing")
    assert done.exit_code == 1
    assert "no partition of nothing" in done.stderr


def test_what_can_not_be_compacted(tmp_path: Path) -> None:
    folders = unpacked("zookeeper-stopped", tmp_path)
    (path,) = list(Path(folders.paths[0], "state-0").glob("*.log"))[:1]
    raw = bytearray(path.read_bytes())
    raw[80] ^= 0xFF
    path.write_bytes(raw)
    done = compact(folders)
    assert done.exit_code == 1
    assert "state-0: a batch in it can't be read\n" in done.stdout
    lock = Files(8).lock(f"{folders.paths[0]}/.lock")
    try:
        done = compact(folders)
    finally:
        lock.close()
    assert done.exit_code == 1
    assert "is in use" in done.stderr
