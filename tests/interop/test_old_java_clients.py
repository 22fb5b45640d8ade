"""Java's producers and consumers from 2015 and 2017, which use the message formats 0 and 1, unmodified."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from harness import maven
from harness.brokers import Broker
from harness.java import Unavailable
from tests.clients.transactional import read_confluent
from tests.interop.support import Java, run

NewTopic = Callable[..., str]
VERSIONS = {"0.8.2.2": "kafka_2.11", "0.10.2.2": "kafka_2.12"}
CODECS = ["none", "gzip", "snappy", "lz4"]


@pytest.fixture(params=VERSIONS)
def old_java(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Java:
    version = request.param
    coordinates = [f"org.apache.kafka:{VERSIONS[version]}:{version}"]
    try:
        # Old dependencies that Maven Central doesn't have are not needed.
        libs = maven.jars(f"kafka-{version}", coordinates)
    except Unavailable as lack:
        pytest.skip(str(lack))
    log4j = tmp_path / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    return Java(broker.address, version, libs, log4j)


def produce(java: Java, topic: str, values: list[str], *arguments: str) -> None:
    command = java.command(
        "kafka.tools.ConsoleProducer", "--broker-list", java.address, "--topic", topic, *arguments
    )
    run(command, stdin="".join(f"{value}\n" for value in values))


def simple_consumer(java: Java, topic: str, count: int) -> list[str]:
    """What the consumer without a group reads from the beginning; its messages are in format 0 or 1."""
    arguments = ["--broker-list", java.address, "--topic", topic, "--partition", "0", "--offset", "-2"]
    output = run(
        java.command(
            "kafka.tools.SimpleConsumerShell", *arguments, "--max-messages", str(count), "--no-wait-at-logend"
        )
    )
    return output.splitlines()


def test_old_clients_and_new_ones(old_java: Java, java: Java, new_topic: NewTopic) -> None:
    """What old producers write, old and new consumers read; and the other way round."""
    topic = new_topic()
    expected: list[str] = []
    for codec in CODECS:
        values = [f"{codec} {number}" for number in range(50)]
        arguments = ["--compression-codec", codec]
        if old_java.version == "0.8.2.2":
            # The Scala producer in turn with Java's.
            arguments += ["--sync"] if codec == "gzip" else ["--new-producer"]
        produce(old_java, topic, values, *arguments)
        expected += values
    for codec in ("gzip", "lz4"):
        values = [f"new {codec} {number}" for number in range(50)]
        java.produce(topic, values, "--compression-codec", codec)
        expected += values
    assert sorted(value.decode() for value in read_confluent(java.address, topic)) == sorted(expected)
    assert sorted(simple_consumer(old_java, topic, len(expected))) == sorted(expected)
