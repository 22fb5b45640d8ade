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
from harness.share_members import PROGRAM, ShareMembers, Worked
from tests.interop.conftest import KIND, MakeTopic, java_tools
from tests.interop.support import PROGRAMS, Java, needed, run
from tests.support.cluster import Cluster
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client.admin import AlterConfig, ConfigResource, ResourceType
from ottla_client.sync import Admin, Producer
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.share_group_describe import ShareGroupDescribeRequest
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest

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


def wait_for_members(broker: Broker, group: str, count: int) -> None:
    """Wait until so many members have partitions."""
    with Wire(broker.port) as wire:

        def joined() -> bool:
            described = wire.call(ShareGroupDescribeRequest(group_ids=[group]), 1).groups[0]
            return len([each for each in described.members if each.assignment.topic_partitions]) == count

        wait_for(joined, f"{count} members to join")


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
        wait_for_members(broker, group, 2)

        def seen() -> Counter[str]:
            lines = [line for member in members for line in list(member.lines)]
            return Counter(line.split()[3] for line in lines if line[0].isdigit())

        with Producer(bootstrap_servers=broker.address) as producer:
            for number in range(100):
                kind = {0: "x", 1: "r", 2: "n"}.get(number % 10, "a")
                producer.send(topic, f"{kind}{number}".encode())
            producer.flush()
            wait_for(
                lambda: sum(seen().values()) == 120,
                "every record, and twenty that are released or renewed once",
            )
            # It kills the member that gets it; then the other one does.
            producer.send(topic, b"k-last")
        wait_for(lambda: seen()["k-last"] == 2, "the last record, twice")
        # What the dead member had accepted in its last poll may not have been sent, and is delivered again.
        assert len(seen()) == 101
        assert {value for value, times in seen().items() if times > 1} >= {
            value for value in seen() if value[0] in "nrk"
        }
        # A record whose lock was renewed is handed out again, but not delivered again.
        lines = Counter(line for member in members for line in member.lines if line.split()[3][0] == "n")
        twice = [line.split() for line, times in lines.items() if times == 2]
        assert len({value for _, _, deliveries, value in twice if deliveries == "1"}) == 10
        assert sorted(member.process.poll() is None for member in members) == [False, True]
    finally:
        for member in members:
            member.close()
    assert not [line for member in members for line in member.lines if line.startswith("error")]
    assert "share" in java_4.tool("all-groups", "--list", "--group-type", "share").lower()


def test_java_members_work_in_the_order_of_keys_though_some_are_killed(
    broker: Broker, java_4: Java, new_topic: MakeTopic, tmp_path: Path
) -> None:
    run([needed("javac"), "-cp", f"{java_4.libs}/*", "-d", str(tmp_path), str(PROGRAM)])
    topic = new_topic(4)
    group = f"group-{topic}"
    keys, count = 60, 100
    with Admin(broker.address) as admin:
        start = AlterConfig("share.auto.offset.reset", "earliest")
        admin.alter_configs({ConfigResource(ResourceType.GROUP, group): [start]})
    of_group = ["--entity-type", "groups", "--entity-name", group]
    java_4.tool("configs", "--alter", *of_group, "--add-config", "share.key.ordered=true")
    command = java_4.command("KeyedShareMembers", classes=tmp_path)
    crowds = [ShareMembers(command, java_4.address, group, topic, 8, 2, 10) for _ in range(2)]
    try:
        wait_for_members(broker, group, 16)
        with Producer(bootstrap_servers=broker.address, compression_type="lz4") as producer:
            for number in range(count):
                for key in range(keys):
                    producer.send(topic, b"%d" % number, key=b"k%d" % key)
        wait_for(lambda: all(len(crowd.worked) > 100 for crowd in crowds), "both processes to work")
        crowds[0].kill()
        dead = {worked.member for worked in crowds[0].worked}

        def seen() -> set[tuple[str, int]]:
            return {(each.key, each.number) for crowd in crowds for each in list(crowd.worked)}

        wait_for(lambda: len(seen()) == keys * count, "every record")
    finally:
        for crowd in crowds:
            crowd.close()
    assert not crowds[1].errors
    assert len(dead) > 1
    last: dict[str, Worked] = {}
    for worked in sorted(worked for crowd in crowds for worked in crowd.worked):
        before = last.get(worked.key)
        if before is None:
            assert worked.number == 0
        elif before.member not in dead or worked.member in dead:
            assert worked.number == before.number + 1, (before, worked)
        else:
            # What the dead one had not acknowledged is delivered again, from its first record on.
            assert worked.number <= before.number + 1, (before, worked)
        last[worked.key] = worked
    assert {worked.number for worked in last.values()} == {count - 1}


def test_kafkas_tool_shows_and_changes_offsets(
    broker: Broker, java_4: Java, new_topic: MakeTopic, tmp_path: Path
) -> None:
    topic = new_topic(1)
    group = "billing"
    with Wire(broker.port) as wire, Producer(bootstrap_servers=broker.address) as producer:
        for number in range(10):
            producer.send(topic, b"%d" % number)
        producer.flush()
        wire.call(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4)
        beat = ShareGroupHeartbeatRequest(group_id=group, member_id="m", subscribed_topic_names=[topic])
        wait_for(lambda: wire.call(beat, 1).error_code == 0, "a member to join")
        leave = ShareGroupHeartbeatRequest(group_id=group, member_id="m", member_epoch=-1)
        assert wire.call(leave, 1).error_code == 0
    of_group = ["--group", group]
    reset = java_4.tool(
        "share-groups", "--reset-offsets", *of_group, "--topic", topic, "--to-earliest", "--execute"
    )
    assert [line.split() for line in reset.splitlines() if topic in line] == [[group, topic, "0", "0"]]
    shown = java_4.tool("share-groups", "--describe", *of_group, "--offsets")
    assert [line.split()[:5] for line in shown.splitlines() if topic in line] == [
        [group, topic, "0", "0", "10"]
    ]
    java_4.tool("share-groups", "--delete-offsets", *of_group, "--topic", topic)
    assert topic not in java_4.tool("share-groups", "--describe", *of_group, "--offsets")


def test_java_members_in_a_cluster_outlive_a_broker(zookeeper: ZooKeeperProcess, tmp_path: Path) -> None:
    classes = tmp_path / "classes"
    classes.mkdir()
    settings = {
        "group.share.heartbeat.interval.ms": 500,
        "group.share.min.heartbeat.interval.ms": 100,
        "share.coordinator.state.topic.num.partitions": 3,
    }
    cluster = Cluster(tmp_path, zookeeper, settings=settings)
    topic, group = "orders", "packers"
    keys, count = 20, 60
    crowd = None
    try:
        cluster.start()
        java = java_tools(cluster.bootstrap, maven.KAFKA_4_VERSION, tmp_path)
        run([needed("javac"), "-cp", f"{java.libs}/*", "-d", str(classes), str(PROGRAM)])
        create(cluster, topic, 3)
        with Admin(cluster.bootstrap) as admin:
            configs = [
                AlterConfig("share.auto.offset.reset", "earliest"),
                AlterConfig("share.key.ordered", "true"),
            ]
            admin.alter_configs({ConfigResource(ResourceType.GROUP, group): configs})
        with Producer(bootstrap_servers=cluster.bootstrap, acks="all") as producer:
            for number in range(count):
                for key in range(keys):
                    producer.send(topic, b"%d" % number, key=b"k%d" % key)
        command = java.command("KeyedShareMembers", classes=classes)
        crowd = ShareMembers(command, cluster.bootstrap, group, topic, 6, 2, 10)

        def seen() -> set[tuple[str, int]]:
            assert crowd is not None
            return {(each.key, each.number) for each in list(crowd.worked)}

        wait_for(lambda: len(seen()) > 100, "the members to work")
        cluster.brokers[cluster.leader(topic)].kill()
        wait_for(lambda: len(seen()) == keys * count, "every record")
    finally:
        if crowd is not None:
            crowd.close()
        cluster.kill()
    assert not cluster.complaints()
    furthest: dict[str, int] = {}
    for worked in sorted(crowd.worked):
        # What was not acknowledged when the broker died is delivered again; nothing is left out.
        assert worked.number <= furthest.get(worked.key, -1) + 1, worked
        furthest[worked.key] = max(furthest.get(worked.key, -1), worked.number)
