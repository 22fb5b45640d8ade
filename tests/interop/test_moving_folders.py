"""A data folder moves from Ottla to Apache Kafka and back, with and without ZooKeeper, and nothing is lost."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from harness import maven
from harness.brokers import Broker, Kafka, KafkaOnZooKeeper, Ottla
from harness.java import Unavailable
from tests.interop.conftest import jars_of
from tests.interop.support import Java
from tests.log_tools.kafka_folders import SETTINGS, RawProducer, describe
from tests.server import old_files
from tests.support.commands import Outcome, ottla
from tests.support.kafka import QuickKafka, QuickKafkaOnZooKeeper
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

import ottla_client.sync
from ottla_protocol.errors import ErrorCode

OTTLA_SETTINGS = {**SETTINGS, "log.cleaner.enable": "false"}
_SECONDS = 60.0


@pytest.fixture
def zookeeper(tmp_path: Path) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path / "zookeeper", tick_ms=2000)
    yield server.start()
    server.kill()


@pytest.fixture(params=["kraft", "zookeeper"])
def kafka(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Kafka]:
    """A broker of Kafka's that hasn't been started; its folder is to be one that Ottla leaves."""
    try:
        if request.param == "kraft":
            made: Kafka = QuickKafka(tmp_path / "broker", SETTINGS)
        else:
            address = request.getfixturevalue("zookeeper").address
            made = QuickKafkaOnZooKeeper(tmp_path / "broker", {**SETTINGS, "zookeeper.connect": address})
    except Unavailable as lack:
        pytest.skip(str(lack))
    yield made
    made.kill()


def run(*arguments: str) -> Outcome:
    done = ottla("", "log", *arguments)
    assert done.code == 0, done
    return done


def wait_served(broker: Broker) -> None:
    """Kafka's port accepts connections before its partitions have leaders."""
    admin = AdminClient({"bootstrap.servers": broker.address})

    def led() -> bool:
        topics = admin.list_topics(timeout=_SECONDS).topics
        return "orders" in topics and all(
            partition.leader >= 0 for topic in topics.values() for partition in topic.partitions.values()
        )

    wait_for(led, "every partition to have a leader", 120)


def create(broker: Broker, topic: NewTopic) -> None:
    admin = AdminClient({"bootstrap.servers": broker.address})
    for future in admin.create_topics([topic]).values():
        future.result(_SECONDS)


def pay(address: str, transactional_id: str, *outcomes: str) -> None:
    """Write transactions that end in these ways. One that is to stay open is the last; nothing ends it for a day."""
    settings = {"transactional.id": transactional_id, "transaction.timeout.ms": 86_400_000}
    producer = Producer({"bootstrap.servers": address, **settings})
    producer.init_transactions(_SECONDS)
    for outcome in outcomes:
        producer.begin_transaction()
        for number in range(3):
            producer.produce("payments", f"{outcome} {number}", None, 0)
        assert producer.flush(_SECONDS) == 0
        if outcome.startswith("committed"):
            producer.commit_transaction(_SECONDS)
        elif outcome.startswith("aborted"):
            producer.abort_transaction(_SECONDS)


def pay_by_version_2(address: str, *outcomes: str) -> None:
    """The same, in transactions of version 2: their states are values of version 1."""
    with ottla_client.sync.Producer(address, transactional_id="modern payer") as producer:
        for outcome in outcomes:
            producer.begin_transaction()
            for number in range(3):
                producer.send("payments", f"{outcome} {number}".encode(), partition=0)
            if outcome.startswith("committed"):
                producer.commit_transaction()
            else:
                producer.flush()
                producer.abort_transaction()
        assert producer._transactions is not None
        assert producer._transactions.is_version_2


def payments(address: str) -> list[str]:
    """What a reader of committed records sees of ``payments``."""
    consumer = Consumer(
        {
            "bootstrap.servers": address,
            "group.id": "auditors",
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }
    )
    consumer.subscribe(["payments"])
    found = []
    while (message := consumer.poll(_SECONDS)) is not None and message.error() is None:
        found.append((message.value() or b"").decode())
    consumer.close()
    return found


def three(*outcomes: str) -> list[str]:
    return [f"{outcome} {number}" for outcome in outcomes for number in range(3)]


def dump_all(kafka: Kafka, folder: Path) -> None:
    """Kafka's own tool reads every file of the folder and finds nothing amiss."""
    log4j = folder / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    java = Java(kafka.address, maven.KAFKA_VERSION, jars_of(maven.KAFKA_VERSION), log4j)
    suffixes = {".log", ".index", ".timeindex", ".txnindex", ".snapshot", ".checkpoint"}
    files = [path for path in sorted(kafka.data.rglob("*")) if path.suffix in suffixes]
    assert {path.suffix for path in files} >= suffixes
    java.dump_log(files, "--deep-iteration")


def hand_over(kafka: Kafka) -> None:
    where = ["--kraft"]
    if isinstance(kafka, KafkaOnZooKeeper):
        where = ["--zookeeper", kafka.settings["zookeeper.connect"]]
    shown = run("hand-over", "--data-dir", str(kafka.data), *where)
    assert shown.err.endswith("nothing was changed; add --execute to carry it out\n")
    done = run("hand-over", "--data-dir", str(kafka.data), *where, "--execute")
    assert done.err.endswith("Kafka can start on the folders\n")


def adopt(kafka: Kafka) -> None:
    where = []
    if isinstance(kafka, KafkaOnZooKeeper):
        where = ["--zookeeper", kafka.settings["zookeeper.connect"]]
    done = run("adopt", "--data-dir", str(kafka.data), *where, "--execute")
    assert "the old one kept as" in done.err


def test_to_kafka_and_back(kafka: Kafka, tmp_path: Path) -> None:
    ottla_broker = Ottla(kafka.folder, OTTLA_SETTINGS, kafka.port)
    ottla_broker.start()
    try:
        old_files.fill(ottla_broker.address)
        create(ottla_broker, NewTopic("payments", 1, 1))
        raw = RawProducer(kafka.port)
        raw.begin()
        for _ in range(5):
            assert raw.produce()[0] is ErrorCode.NONE
        pay_by_version_2(ottla_broker.address, "committed by version 2", "aborted by version 2")
        pay(ottla_broker.address, "payer", "committed", "aborted", "open")
        pay(ottla_broker.address, "other payer", "committed later")
        left = describe(ottla_broker.address, raw)
        if isinstance(kafka, KafkaOnZooKeeper):
            ottla_broker.kill()
    finally:
        ottla_broker.stop()

    hand_over(kafka)
    if not isinstance(kafka, KafkaOnZooKeeper):
        dump_all(kafka, tmp_path)
    kafka.start()
    wait_served(kafka)
    found = describe(kafka.address, raw)
    compacted_since(left, found)
    assert found == left
    # The producer goes on: what it sends again isn't stored again.
    assert raw.produce(raw.sequence - 1) == (ErrorCode.NONE, raw.last_offset)
    assert raw.produce(raw.sequence + 1)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert raw.produce()[0] is ErrorCode.NONE
    other = RawProducer(kafka.port)
    other.begin()
    assert other.producer_id > raw.producer_id
    # Kafka compacts what Ottla wrote, and adds transactions and a topic of its own.
    wait_for(lambda: count(kafka, raw) <= 60, "Kafka to compact", 120)
    # A transaction that Ottla began is still open, and hides what came later. Its producer's successor ends it.
    assert payments(kafka.address) == three("committed by version 2", "committed")
    pay(kafka.address, "modern payer", "committed by version 0")
    pay(kafka.address, "payer", "committed by Kafka", "aborted by Kafka", "open in Kafka")
    pay(kafka.address, "other payer", "committed at last")
    create(kafka, NewTopic("born", 2, 1, config={"retention.ms": "-1"}))
    seen = three(
        "committed by version 2",
        "committed",
        "committed later",
        "committed by version 0",
        "committed by Kafka",
    )
    assert payments(kafka.address) == seen
    left = describe(kafka.address, raw)
    if isinstance(kafka, KafkaOnZooKeeper):
        kafka.stop()
    else:
        kafka.kill()

    adopt(kafka)
    ottla_broker.start()
    try:
        assert describe(ottla_broker.address, raw) == left
        assert payments(ottla_broker.address) == seen
        pay(ottla_broker.address, "payer", "committed by Ottla")
        seen += three("committed at last", "committed by Ottla")
        assert payments(ottla_broker.address) == seen
        pay_by_version_2(ottla_broker.address, "committed by version 2 again")
        assert payments(ottla_broker.address) == seen + three("committed by version 2 again")
        assert raw.produce(raw.sequence - 1) == (ErrorCode.NONE, raw.last_offset)
        assert raw.produce()[0] is ErrorCode.NONE
        another = RawProducer(kafka.port)
        another.begin()
        assert another.producer_id > other.producer_id
    finally:
        ottla_broker.send_signal(signal.SIGTERM)
        ottla_broker.stop()
    assert run("verify", str(kafka.data)).out == b""


def count(broker: Broker, raw: RawProducer) -> int:
    """The records of the compacted topic."""
    found: int = describe(broker.address, raw)["topics"]["state"]["records"]["0"]["count"]
    return found


def compacted_since(left: dict[str, Any], found: dict[str, Any]) -> None:
    """Leave the compacted topic's records out of a comparison: Kafka may have begun already."""
    for each in (left, found):
        del each["topics"]["state"]["records"]
