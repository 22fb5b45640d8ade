"""Transactions of clients in Java and Go: producers, Kafka Streams and Kafka Connect, which are killed on the way."""

from __future__ import annotations

import http.client
import json
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import confluent_kafka as ck
import pytest
from harness import maven, wire
from harness.brokers import HOST, Broker
from harness.java import Unavailable
from harness.ports import free_port
from tests.clients.transactional import committed_offset
from tests.interop.conftest import KIND, jars_of
from tests.interop.support import PROGRAMS, Java, built, needed, run
from tests.support.late_drivers import JavaProducers
from tests.support.to_the_end import messages
from tests.support.waiting import wait_for

_SETTINGS = {
    "group.initial.rebalance.delay.ms": "0",
    "group.min.session.timeout.ms": "500",
    "auto.create.topics.enable": "false",
    "transaction.state.log.num.partitions": "2",
    "offsets.topic.num.partitions": "2",
}
_DEADLINE = 90.0


@pytest.fixture(scope="module")
def own_broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    """Members of its groups that are killed are soon missed."""
    running = KIND(tmp_path_factory.mktemp("own"), _SETTINGS)
    running.start()
    yield running
    running.remove()


@pytest.fixture
def create(own_broker: Broker, request: pytest.FixtureRequest) -> Callable[[str], str]:
    def make(name: str) -> str:
        connection = wire.Connection(HOST, own_broker.port)
        connection.create(name, 1, {})
        connection.close()
        return name

    return make


def read(address: str, topic: str) -> list[tuple[str, str]]:
    """Keys and values of all committed records."""
    return [
        ((message.key() or b"").decode(), (message.value() or b"").decode())
        for message in messages(address, topic, seconds=_DEADLINE)
    ]


def uses_version_2(address: str, transactional_id: str) -> bool:
    """Whether an EndTxn of the id was of transaction version 2: only those leave values of version 1."""
    versions = {
        message.value()[:2]
        for message in messages(address, "__transaction_state", range(2), seconds=_DEADLINE)
        if message.value() and (message.key() or b"").endswith(transactional_id.encode())
    }
    assert versions
    return b"\0\1" in versions


def write(address: str, topic: str, records: list[tuple[str, str]]) -> None:
    producer = ck.Producer({"bootstrap.servers": address, "linger.ms": 5})
    for key, value in records:
        producer.produce(topic, value, key)
    assert producer.flush(_DEADLINE) == 0


@contextmanager
def process(command: list[str], output: Path) -> Iterator[subprocess.Popen[bytes]]:
    """A program that is killed at the end."""
    with output.open("ab") as log:
        running = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=log, stderr=log, env=dict(os.environ)
        )
    try:
        yield running
    finally:
        running.kill()
        running.communicate()


def compiled(source: str, libs: Path, folder: Path) -> Path:
    run([needed("javac"), "-cp", f"{libs}/*", "-d", str(folder), str(PROGRAMS / source)])
    return folder


def jars(name: str, coordinates: list[str]) -> Path:
    try:
        return maven.jars(name, [f"org.apache.kafka:{each}:{maven.KAFKA_VERSION}" for each in coordinates])
    except Unavailable as lack:
        pytest.skip(str(lack))


def java_with(address: str, libs: Path, folder: Path) -> Java:
    log4j = folder / "log4j.properties"
    log4j.write_text(
        "log4j.rootLogger=WARN, err\nlog4j.appender.err=org.apache.log4j.ConsoleAppender\n"
        "log4j.appender.err.target=System.err\nlog4j.appender.err.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.err.layout.ConversionPattern=%d %p %c: %m%n\n"
    )
    return Java(address, maven.KAFKA_VERSION, libs, log4j)


@pytest.fixture(scope="module")
def oldest_classes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Compiled with the oldest library; the newer ones run the same classes."""
    return compiled("TransactionalProducer.java", jars_of("2.8.2"), tmp_path_factory.mktemp("classes"))


@pytest.mark.parametrize("version", ["2.8.2", maven.KAFKA_VERSION, maven.KAFKA_4_VERSION])
def test_java_producer(
    version: str, own_broker: Broker, create: Callable[[str], str], oldest_classes: Path, tmp_path: Path
) -> None:
    topic = create(f"java-{version}")
    java = java_with(own_broker.address, jars_of(version), tmp_path)
    producers = JavaProducers(java.command("TransactionalProducer", classes=oldest_classes))
    driver, other = (producers.make(own_broker.address, topic, f"tx-{topic}", {}) for _ in range(2))
    driver.init()
    for number in range(12):
        driver.begin()
        driver.send(f"{number}a")
        driver.send(f"{number}b")
        driver.offsets(number)
        if number % 3 == 2:
            driver.flush()
            driver.abort()
        else:
            driver.commit()
    expected = [("", f"{number}{part}") for number in range(12) if number % 3 != 2 for part in "ab"]
    wait_for(lambda: len(read(own_broker.address, topic)) >= len(expected), "the records")
    assert read(own_broker.address, topic) == expected
    wait_for(lambda: committed_offset(own_broker.address, f"tx-{topic}", topic) == 10, "the offset")
    other.init()
    driver.begin()
    driver.send("fenced")
    # A leader refuses what Kafka 4's producer writes; its coordinator refuses to end the transaction.
    is_4 = version == maven.KAFKA_4_VERSION
    refused = "InvalidProducerEpochException" if is_4 else "ProducerFencedException"
    with pytest.raises(Exception, match=f"error {refused}"):
        driver.commit()
    if is_4:
        with pytest.raises(Exception, match="error ProducerFencedException"):
            driver.abort()
    producers.close()
    assert read(own_broker.address, topic) == expected
    assert uses_version_2(own_broker.address, f"tx-{topic}") is is_4


def test_streams(own_broker: Broker, create: Callable[[str], str], tmp_path: Path) -> None:
    """An application is killed while it counts: each record is counted once, and each count is written once."""
    address = own_broker.address
    source, target = create("streams-source"), create("streams-target")
    libs = jars("streams", ["kafka-streams"])
    java = java_with(address, libs, tmp_path)
    classes = compiled("StreamsCount.java", libs, tmp_path)
    arguments = [address, "streams-count", source, target, str(tmp_path / "state")]
    command = java.command("StreamsCount", *arguments, classes=classes)
    records = [(f"key-{number % 5}", str(number)) for number in range(1000)]
    output = tmp_path / "streams.log"
    with process(command, output):
        write(address, source, records[:700])
        wait_for(lambda: len(read(address, target)) >= 50, "the first counts", _DEADLINE)
    write(address, source, records[700:])
    with process(command, output):
        wait_for(lambda: len(read(address, target)) >= len(records), "all counts", _DEADLINE, 0.2)
    counts: dict[str, list[int]] = {}
    for key, value in read(address, target):
        counts.setdefault(key, []).append(int(value))
    assert counts == {f"key-{key}": list(range(1, 201)) for key in range(5)}, output.read_text()[-2000:]


def test_connect(own_broker: Broker, create: Callable[[str], str], tmp_path: Path) -> None:
    """A worker with an exactly-once source is killed while it reads a file: each line arrives once, in order."""
    address = own_broker.address
    topic = create("lines")
    port = free_port()
    file = tmp_path / "lines.txt"
    lines = [f"line {number}" for number in range(20_000)]
    file.write_text("".join(f"{line}\n" for line in lines[:15_000]))
    config = tmp_path / "worker.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in _worker(address, port).items()))
    java = java_with(address, jars("connect", ["connect-runtime", "connect-file"]), tmp_path)
    command = java.command("org.apache.kafka.connect.cli.ConnectDistributed", str(config))
    connector = {
        "connector.class": "org.apache.kafka.connect.file.FileStreamSourceConnector",
        "tasks.max": "1",
        "file": str(file),
        "topic": topic,
        "batch.size": "100",
        "exactly.once.support": "required",
        "transaction.boundary": "poll",
    }
    output = tmp_path / "connect.log"
    with process(command, output):
        wait_for(lambda: _put(port, "/connectors/lines/config", connector), "the worker", _DEADLINE, 0.1)
        wait_for(lambda: len(read(address, topic)) >= 1000, "the first lines", _DEADLINE)
    with file.open("a") as more:
        more.write("".join(f"{line}\n" for line in lines[15_000:]))
    with process(command, output):
        wait_for(lambda: len(read(address, topic)) >= len(lines), "all lines", _DEADLINE, 0.2)
    assert [value for _, value in read(address, topic)] == lines, output.read_text()[-2000:]


def _worker(address: str, port: int) -> Mapping[str, str]:
    storage = {
        f"{kind}.storage.{key}": value
        for kind in ("config", "offset", "status")
        for key, value in (("topic", f"connect-{kind}"), ("replication.factor", "1"))
    }
    return {
        "bootstrap.servers": address,
        "group.id": "connect",
        **storage,
        "offset.storage.partitions": "1",
        "status.storage.partitions": "1",
        "key.converter": "org.apache.kafka.connect.storage.StringConverter",
        "value.converter": "org.apache.kafka.connect.storage.StringConverter",
        "exactly.once.source.support": "enabled",
        "offset.flush.interval.ms": "100",
        "scheduled.rebalance.max.delay.ms": "0",
        "session.timeout.ms": "2000",
        "heartbeat.interval.ms": "500",
        "plugin.discovery": "service_load",
        "listeners": f"http://{HOST}:{port}",
    }


def _put(port: int, path: str, body: Mapping[str, str]) -> bool:
    """Whether Connect has accepted the body; False as long as it doesn't serve or is rebalancing."""
    connection = http.client.HTTPConnection(HOST, port, timeout=30)
    try:
        connection.request("PUT", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read().decode()
    except OSError:
        return False
    finally:
        connection.close()
    if answer.status in (404, 409, 500, 503):
        return False
    assert answer.status in (200, 201), (answer.status, text)
    return True


def test_franz_go(own_broker: Broker, create: Callable[[str], str]) -> None:
    address = own_broker.address
    source, target = create("kgo-source"), "kgo-target"
    values = [f"value-{number}" for number in range(300)]
    write(address, source, [("", value) for value in values])
    go = needed("go")
    folder = built("go", PROGRAMS / "go", "bin", [go, "build", "-o", "bin/", "./..."])
    assert run([str(folder / "bin" / "kgotxn"), address, source, target]).splitlines()[-1] == "ok"
    assert [value for _, value in read(address, target)] == [value.upper() for value in values]
    assert uses_version_2(address, f"tx-{target}")
