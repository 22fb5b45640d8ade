"""A full disk: the producer gets an error, nothing acknowledged is lost, and with room the broker continues."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from tests.badinput.requests import fetch, produce, produce_answer, records
from tests.badinput.test_groups import commit, ready
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of a few megabytes. The broker's own log is written to it as well."""
    folder = tmp_path / "disk"
    folder.mkdir()
    if os.getuid() != 0:
        pytest.skip("only root may mount a small file system")
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=12m", "tmpfs", str(folder)], capture_output=True, text=True
    )
    if done.returncode:
        pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
    yield folder
    subprocess.run(["umount", "--lazy", str(folder)], check=True)


def fill(path: Path) -> None:
    """Take every byte that is left."""
    with path.open("wb", buffering=0) as file:
        for size in (1 << 16, 4096, 512, 1):
            try:
                while True:
                    file.write(bytes(size))
            except OSError:
                continue


@pytest.mark.parametrize("settings", [{}, {"log.flush.interval.messages": 1}], ids=["page-cache", "fsync"])
def test_a_full_disk(
    small_disk: Path, settings: dict[str, object], own_broker: Callable[..., BrokerProcess]
) -> None:
    broker = own_broker(folder=small_disk / "data", settings={**settings, "offsets.topic.num.partitions": 2})
    filler = small_disk / "filler"
    create_topic(broker, "t", 1, segment_bytes=1_000_000, segment_index_bytes=10_000)
    with Wire(broker.port) as wire:
        ready(wire, "g")
        assert commit(wire, "g", "t", committed_offset=1) == 0
        acked = [produce(wire, "t", records(b"%d" % i + b"x" * 1000)) for i in range(20)]
        assert acked == [(0, i) for i in range(20)]
        fill(filler)

        refusals = []
        for number in range(20, 60):
            answer = produce_answer(wire, "t", records(b"%d" % number + b"x" * 5000))
            if answer.error_code == 0:
                acked.append((0, answer.base_offset))
            else:
                refusals.append(answer)
        assert refusals
        assert {answer.error_code for answer in refusals} == {ErrorCode.KAFKA_STORAGE_ERROR}
        assert all(answer.error_message and "space" in answer.error_message.lower() for answer in refusals)
        new = CreatableTopic(name="new", num_partitions=5, replication_factor=1)
        assert wire.call(CreateTopicsRequest(topics=[new], timeout_ms=5000), 5).topics[0].error_code != 0
        commits = [
            commit(wire, "g", "t", committed_offset=2, committed_metadata="m" * 4000) for _ in range(5)
        ]
        assert commits[-1] != 0
        for _, offset in acked:
            assert fetch(wire, "t", offset)[0] == 0, "what is there can be read while the disk is full"

        filler.unlink()

        def goes_on() -> bool:
            error, offset = produce(wire, "t", records(b"room again"))
            if error == 0:
                acked.append((0, offset))
            return error == 0

        wait_for(goes_on, "the broker to take records again")
        wait_for(lambda: commit(wire, "g", "t", committed_offset=3) == 0, "the broker to take commits again")
        assert [offset for _, offset in acked] == list(range(len(acked)))
    create_topic(broker, "new", 2)
    broker.kill()
    broker.start()
    with Wire(broker.port) as wire:
        for _, offset in acked[:20]:
            assert b"%dx" % offset in fetch(wire, "t", offset)[1]
        assert b"room again" in fetch(wire, "t", acked[-1][1])[1]
        assert produce(wire, "t", records(b"v")) == (0, len(acked))


def test_a_disk_that_is_full_at_the_start(
    small_disk: Path, tmp_path: Path, own_broker: Callable[..., BrokerProcess]
) -> None:
    broker = own_broker(folder=small_disk / "data")
    create_topic(broker, "t", 1)
    with Wire(broker.port) as wire:
        assert produce(wire, "t", records(b"v")) == (0, 0)
    broker.kill()
    broker.log_file = tmp_path / "broker.log"
    filler = small_disk / "filler"
    fill(filler)
    try:
        broker.start()
    except RuntimeError:
        (line,) = [line for line in broker.log().splitlines() if line.startswith("ottla broker: ")]
        assert "space" in line.lower()
    broker.kill()
    filler.unlink()
    broker.start()
    with Wire(broker.port) as wire:
        assert b"v" in fetch(wire, "t", 0)[1]
        assert produce(wire, "t", records(b"v")) == (0, 1)
