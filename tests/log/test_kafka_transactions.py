"""Logs with transactions that Apache Kafka 3.9.1 wrote: opened, recovered and read as Kafka would."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

import pytest
from tests.log_tools.kafka_folders import PAYMENTS, unpacked
from tests.replica.test_transaction_machine import consume

from ottla_broker.log.config import LogConfig
from ottla_broker.log.environment import LogEnvironment
from ottla_broker.log.files import Files
from ottla_broker.log.log import Log
from ottla_broker.log.producer_snapshot import decode_snapshot, encode_snapshot
from ottla_protocol.records.formats import iter_headers
from ottla_protocol.records.record import decode_records

KINDS = ("kraft-stopped", "kraft-killed", "zookeeper-stopped", "zookeeper-killed")
NOW_MS = 1_700_000_000_000

Open = Callable[..., Log]


@pytest.fixture(params=KINDS)
def kind(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


@pytest.fixture
def folder(kind: str, tmp_path: Path) -> Path:
    """The topic's folder, in a copy."""
    folders = unpacked(kind, tmp_path)
    (found,) = (path for each in folders.paths for path in Path(each).glob(f"{PAYMENTS}-0"))
    return found


@pytest.fixture
def open_log(folder: Path) -> Open:
    files = Files(max_open=8)

    def made(clean: bool, recovery_point: int = 0) -> Log:
        environment = LogEnvironment(files, lambda: NOW_MS, Random(1))
        config = LogConfig()
        log = Log(str(folder), PAYMENTS, 0, config, environment, clean=clean, recovery_point=recovery_point)
        log.open().producers.unstable.replicated_to(log.log_end_offset)
        return log

    return made


def committed(log: Log) -> list[bytes | None]:
    """The values that a consumer of committed records gets."""
    producers = log.producers
    stable = min(log.log_end_offset, producers.unstable.first_offset)
    found = log.reader.read(0, 1 << 20, max_offset=stable, min_one=True)
    assert found is not None
    data = found.read()
    taken = set(consume(data, log.reader.aborted(0, found, stable)))
    return [
        record.value
        for position, header in iter_headers(data)
        if header.base_offset in taken
        for record in decode_records(data, position, header)
    ]


def states(log: Log) -> dict[int, tuple[int, ...]]:
    return {
        entry.producer_id: (
            entry.epoch,
            entry.last_sequence,
            entry.batches[-1].last_offset,
            entry.coordinator_epoch,
            entry.txn_first_offset,
            entry.last_timestamp,
        )
        for entry in log.producers.producers.values()
    }


def test_a_log_is_opened_and_recovered_as_kafka_left_it(kind: str, folder: Path, open_log: Open) -> None:
    index = folder / "00000000000000000000.txnindex"
    kafkas = index.read_bytes()
    assert len(kafkas) % 34 == 0
    assert kafkas
    log = open_log(clean=kind.endswith("stopped"))
    stable = log.producers.unstable.first_offset
    assert stable < log.log_end_offset
    assert committed(log) == [b"committed 0", b"committed 1", b"committed 2"]
    found = states(log)
    open_ones = {key: each for key, each in found.items() if each[4] >= 0}
    assert min(each[4] for each in open_ones.values()) == stable
    for path in (*folder.glob("*.snapshot"), index):
        path.unlink()
    recovered = open_log(clean=False)
    assert index.read_bytes() == kafkas
    assert states(recovered) == found
    assert committed(recovered) == committed(log)
    recovered.close()
    snapshot = folder / f"{recovered.log_end_offset:020d}.snapshot"
    assert {entry.producer_id for entry in decode_snapshot(snapshot.read_bytes())} == found.keys()


def test_snapshots_are_kafkas_byte_for_byte(kind: str, folder: Path, open_log: Open) -> None:
    snapshots = list(folder.glob("*.snapshot"))
    for path in snapshots:
        data = path.read_bytes()
        assert encode_snapshot(decode_snapshot(data)) == data
    if kind.endswith("killed"):
        return
    (path,) = snapshots
    kafkas = {entry.producer_id: entry.pack() for entry in decode_snapshot(path.read_bytes())}
    path.unlink()
    log = open_log(clean=False)
    assert {entry.producer_id: entry.pack() for entry in log.producers.producers.values()} == kafkas
