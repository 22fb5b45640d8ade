"""Fills Apache Kafka 3.9.1, on KRaft and on ZooKeeper, and keeps the data folders that it leaves.

``python -m tests.log_tools.kafka_folders FOLDER`` makes ``kraft-stopped``, ``kraft-killed``, ``zookeeper-stopped`` and
``zookeeper-killed``, each a ``.tar.xz`` in FOLDER with the folders of ``log.dirs`` and ``expected.json``, which says
what the broker held. :func:`describe` says the same of a broker that has taken them over.
"""

from __future__ import annotations

import json
import sys
import tarfile
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    NewTopic,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from harness.brokers import Kafka, KafkaOnZooKeeper
from harness.ports import free_port
from harness.zookeeper import ZooKeeper
from tests.server import old_files
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.init_producer_id import InitProducerIdRequest
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch

FOLDER = Path(__file__).parent / "data"
SETTINGS = {
    **old_files.SETTINGS,
    "broker.id": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "transaction.state.log.num.partitions": "2",
    "transaction.max.timeout.ms": "86400000",
}
PAYMENTS = "payments"
PAYER = "payer"
_SECONDS = 60.0
_MS = 4_000_000_000_000
"""Far in the future: a producer whose last batch is a day old is forgotten."""


@dataclass
class RawProducer:
    """An idempotent producer whose id, epoch and sequence are known; it writes to ``orders-1``."""

    port: int
    producer_id: int = -1
    epoch: int = -1
    sequence: int = 0
    last_offset: int = -1

    def begin(self) -> None:
        """Get an id. A broker that has just started has none to give out for a moment."""
        with Wire(self.port) as wire:
            deadline = time.monotonic() + _SECONDS
            while True:
                request = InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)
                answer = wire.call(request, 3)
                if answer.error_code != ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                    break
                assert time.monotonic() < deadline, "no producer id"
                time.sleep(0.1)
        assert answer.error_code == 0, ErrorCode(answer.error_code)
        self.producer_id, self.epoch = answer.producer_id, answer.producer_epoch

    def produce(self, sequence: int | None = None) -> tuple[ErrorCode, int]:
        """Write a record with the next sequence, or with one that was used or skipped."""
        number = self.sequence if sequence is None else sequence
        batch = encode_batch(
            [(_MS, b"raw", b"%d" % number, ())],
            producer_id=self.producer_id,
            producer_epoch=self.epoch,
            base_sequence=number,
        )
        data = TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=1, records=batch)])
        with Wire(self.port) as wire:
            answer = wire.call(ProduceRequest(acks=-1, timeout_ms=30_000, topic_data=[data]), 8)
        found = answer.responses[0].partition_responses[0]
        if sequence is None and not found.error_code:
            self.sequence += 1
            self.last_offset = found.base_offset
        return ErrorCode(found.error_code), found.base_offset


def fill(bootstrap: str) -> None:
    """All that ``old_files`` has, a topic that was deleted and created again, and transactions."""
    old_files.fill(bootstrap)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic("deleted", 1, 1), NewTopic(PAYMENTS, 1, 1)]).values():
        future.result(_SECONDS)


def pay(bootstrap: str, numbers: range) -> None:
    """A committed transaction of these numbers, an aborted one, and one that stays open."""
    # With an own id each time: an open transaction is to stay open.
    producer = Producer(
        {
            "bootstrap.servers": bootstrap,
            "transactional.id": f"{PAYER}-{numbers.start}",
            "transaction.timeout.ms": 86_400_000,
        }
    )
    producer.init_transactions(_SECONDS)
    for outcome in ("committed", "aborted", "open"):
        producer.begin_transaction()
        for number in numbers:
            producer.produce(PAYMENTS, f"{outcome} {number}", None, 0)
        assert producer.flush(_SECONDS) == 0
        if outcome == "committed":
            producer.commit_transaction(_SECONDS)
        elif outcome == "aborted":
            producer.abort_transaction(_SECONDS)


def describe(bootstrap: str, raw: RawProducer) -> dict[str, Any]:
    """What ``old_files`` describes, and the producer. Transactions are left out, as the open one ends some day."""
    found = old_files.describe(bootstrap)
    found["payments id"] = found["topics"].pop(PAYMENTS)["id"]
    found["producer"] = {
        "id": raw.producer_id,
        "epoch": raw.epoch,
        "sequence": raw.sequence,
        "last offset": raw.last_offset,
    }
    return found


@dataclass(frozen=True)
class KafkaFolders:
    """The folders of ``log.dirs``, and what the broker held that left them."""

    paths: list[str]
    expected: dict[str, Any]

    @property
    def dirs(self) -> str:
        """The value of ``log.dirs``."""
        return ",".join(self.paths)


def unpacked(kind: str, target: Path) -> KafkaFolders:
    """An archive's content in ``target``."""
    with tarfile.open(FOLDER / f"{kind}.tar.xz") as tar:
        tar.extractall(target, filter="data")
    expected = json.loads((target / "expected.json").read_text())
    return KafkaFolders([str(each) for each in sorted(target.glob("data*"))], expected)


def _keep(archive: Path, folder: Path, names: list[str], expected: dict[str, Any]) -> None:
    (folder / "expected.json").write_text(json.dumps(expected, indent=1))
    with tarfile.open(archive, "w:xz") as tar:
        for name in (*names, "expected.json"):
            tar.add(folder / name, name, filter=lambda info: None if info.name.endswith(".lock") else info)


def _capture(broker: Kafka, names: list[str], target: Path, kind: str) -> None:
    broker.start()
    try:
        raw = RawProducer(broker.port)
        fill(broker.address)
        if kind == "kraft":
            admin = AdminClient({"bootstrap.servers": broker.address})
            user = UserScramCredentialUpsertion(
                "ann", ScramCredentialInfo(ScramMechanism.SCRAM_SHA_256, 4096), b"secret"
            )
            for future in admin.alter_user_scram_credentials([user]).values():
                future.result(_SECONDS)
        raw.begin()
        for _ in range(7):
            assert raw.produce()[0] is ErrorCode.NONE
        pay(broker.address, range(3))
        while old_files.describe(broker.address)["topics"]["state"]["records"]["0"]["count"] > 60:
            pass  # until it is compacted
        expected = describe(broker.address, raw)
        broker.stop()
        _keep(target / f"{kind}-stopped.tar.xz", broker.folder, names, expected)
        broker.start()
        _wait_leader(raw)
        for _ in range(4):
            assert raw.produce()[0] is ErrorCode.NONE
        pay(broker.address, range(3, 5))
        expected = describe(broker.address, raw)
        broker.kill()
        _keep(target / f"{kind}-killed.tar.xz", broker.folder, names, expected)
    finally:
        broker.stop()


def _wait_leader(raw: RawProducer) -> None:
    """A batch sent again has no effect, and shows whether the partition has a leader yet."""
    while raw.produce(raw.sequence - 1)[0] is not ErrorCode.NONE:
        time.sleep(0.1)


def main(target: Path) -> None:
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        dirs = f"{folder / 'kraft/data'},{folder / 'kraft/data-2'}"
        kraft = Kafka(folder / "kraft", {**SETTINGS, "log.dirs": dirs})
        _capture(kraft, ["data", "data-2"], target, "kraft")
        zookeeper = ZooKeeper(folder / "zoo.cfg", folder / "zoo", folder / "zoo.log", free_port())
        zookeeper.start()
        try:
            broker = KafkaOnZooKeeper(
                folder / "zookeeper", {**SETTINGS, "zookeeper.connect": zookeeper.address}
            )
            _capture(broker, ["data"], target, "zookeeper")
        finally:
            zookeeper.kill()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
