"""Java's client of Kafka 4 in groups of the consumer protocol (KIP-848), and the tools that show them."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from harness import maven
from harness.brokers import Broker
from tests.interop.conftest import KIND, MakeTopic, java_tools
from tests.interop.support import MAINS, Java
from tests.support.waiting import wait_for

from ottla_client.sync import Consumer, Producer

if KIND.__name__ == "Kafka":
    pytest.skip("Kafka 3.9 serves the consumer protocol with KRaft only", allow_module_level=True)

PROTOCOL = ("--consumer-property", "group.protocol=consumer")


@pytest.fixture
def java_4(broker: Broker, tmp_path: Path) -> Java:
    return java_tools(broker.address, maven.KAFKA_4_VERSION, tmp_path)


@contextmanager
def running(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        yield process
    finally:
        process.terminate()
        process.wait(60)
        assert process.stdout is not None
        process.stdout.close()


def test_java_4_shares_a_group_with_the_bundled_client(
    broker: Broker, java_4: Java, java: Java, new_topic: MakeTopic
) -> None:
    topic = new_topic(4)
    group = f"group-{topic}"

    def produce(start: int) -> None:
        with Producer(bootstrap_servers=broker.address) as producer:
            for number in range(start, start + 40):
                producer.send(topic, b"%d" % number, partition=number % 4)

    produce(0)
    read = java_4.consume(topic, 40, "--group", group, *PROTOCOL)
    assert sorted(map(int, read)) == list(range(40))

    def state(tools: Java) -> str:
        return tools.tool("groups", "--describe", "--group", group, "--state")

    member = java_4.command(
        MAINS[java_4.version]["console-consumer"],
        *("--bootstrap-server", broker.address, "--topic", topic, "--group", group, *PROTOCOL),
    )
    with running(member) as process:
        wait_for(lambda: "Stable" in state(java_4), "Java's member to join")
        for tools in (java_4, java):
            assert "uniform" in state(tools)
            assert topic in tools.tool("groups", "--describe", "--group", group, "--members", "--verbose")
        options = {"group_id": group, "group_protocol": "consumer"}
        with Consumer(topic, bootstrap_servers=broker.address, **options) as consumer:  # type: ignore[arg-type]

            def shared() -> bool:
                consumer.poll(100)
                return len(consumer.assignment()) == 2

            wait_for(shared, "the partitions to be shared")
        process.terminate()
        process.wait(60)
    # It left, with its offsets committed: the group is empty and can be deleted.
    wait_for(lambda: "Empty" in state(java), "the group to be empty")
    assert "Deletion" in java_4.tool("groups", "--delete", "--group", group)
