"""Java's share consumer of Kafka 4.2, unmodified, in share groups (KIP-932)."""

from __future__ import annotations

import subprocess
from collections import Counter
from contextlib import suppress
from pathlib import Path
from threading import Thread

import pytest
from harness import maven
from harness.brokers import Broker
from tests.interop.conftest import KIND, MakeTopic, java_tools
from tests.interop.support import PROGRAMS, Java, needed, run
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client.admin import AlterConfig, ConfigResource, ResourceType
from ottla_client.sync import Admin, Producer
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest

if KIND.__name__ == "Kafka":
    pytest.skip("Kafka 3.9 serves no share groups", allow_module_level=True)


@pytest.fixture
def java_4(broker: Broker, tmp_path: Path) -> Java:
    return java_tools(broker.address, maven.KAFKA_4_VERSION, tmp_path)


class Member:
    """A process whose share consumer prints what it gets."""

    def __init__(self, java: Java, classes: Path, group: str, topic: str) -> None:
        command = java.command("ShareMember", java.address, group, topic, "explicit", classes=classes)
        self.process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        self.lines: list[str] = []
        self._reader = Thread(target=self._read)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.lines.append(line.strip())

    def close(self) -> None:
        """Let it end, and read to the end of its output."""
        process = self.process
        assert process.stdin is not None
        assert process.stdout is not None
        with suppress(BrokenPipeError), process.stdin:
            process.stdin.write("stop\n")
        try:
            process.wait(60)
        finally:
            process.kill()
            self._reader.join(60)
            process.stdout.close()


def test_java_members_share_a_partition_and_outlive_one_that_is_killed(
    broker: Broker, java_4: Java, new_topic: MakeTopic, tmp_path: Path
) -> None:
    run([needed("javac"), "-cp", f"{java_4.libs}/*", "-d", str(tmp_path), str(PROGRAMS / "ShareMember.java")])
    topic = new_topic(1)
    group = f"group-{topic}"
    # By default a group begins at the end that its first fetch finds, which may come after the first records.
    with Admin(broker.address) as admin:
        start = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource(ResourceType.GROUP, group): [start]})
    members = [Member(java_4, tmp_path, group, topic) for _ in range(2)]
    try:
        with Wire(broker.port) as wire:

            def joined() -> bool:
                described = wire.call(ShareGroupDescribeRequest(group_ids=[group]), 1).groups[0]
                return len([each for each in described.members if each.assignment.topic_partitions]) == 2

            wait_for(joined, "both members to join")

        def seen() -> Counter[str]:
            lines = [line for member in members for line in list(member.lines)]
            return Counter(line.split()[3] for line in lines if line[0].isdigit())

        with Producer(bootstrap_servers=broker.address) as producer:
            for number in range(100):
                kind = {0: "x", 1: "r"}.get(number % 10, "a")
                producer.send(topic, f"{kind}{number}".encode())
            producer.flush()
            wait_for(lambda: sum(seen().values()) == 110, "every record, and ten that are released once")
            # It kills the member that gets it; then the other one does.
            producer.send(topic, b"k-last")
        wait_for(lambda: sum(seen().values()) == 112, "the last record, twice")
        assert len(seen()) == 101
        assert {value for value, times in seen().items() if times == 2} == {
            value for value in seen() if value[0] in "rk"
        }
        assert sorted(member.process.poll() is None for member in members) == [False, True]
    finally:
        for member in members:
            member.close()
    assert not [line for member in members for line in member.lines if line.startswith("error")]
    assert "share" in java_4.tool("all-groups", "--list", "--group-type", "share").lower()
