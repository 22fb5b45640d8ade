"""Kafka's own tools for clusters, and what stands in ZooKeeper: against Ottla's cluster, and against a mixed one."""

from __future__ import annotations

import itertools
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from harness import maven
from harness.java import Unavailable
from tests.interop.conftest import java_tools
from tests.interop.mixed import STATE, MixedCluster
from tests.interop.support import Java
from tests.support.traffic import create, produce
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

CLUSTERS = {"ottla": ("ottla", "ottla", "ottla"), "mixed": ("kafka", "kafka", "ottla")}
_numbers = itertools.count(1)


@pytest.fixture(scope="module", params=list(CLUSTERS))
def cluster(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[MixedCluster]:
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp(f"tools-{request.param}")
    zookeeper = ZooKeeperProcess(folder / "zookeeper")
    made = MixedCluster(folder, zookeeper.start(), CLUSTERS[request.param])
    try:
        yield made.start()
        assert not made.complaints()
    finally:
        made.kill()
        zookeeper.kill()


@pytest.fixture
def java(cluster: MixedCluster, tmp_path: Path) -> Java:
    return java_tools(cluster.bootstrap, maven.KAFKA_VERSION, tmp_path)


@pytest.fixture
def topic() -> str:
    return f"topic-{next(_numbers)}"


def described(java: Java, topic: str) -> list[tuple[str, str, str]]:
    """Leader, replicas and those in sync of a topic's partitions, as kafka-topics shows them."""
    return partitions_in(java.tool("topics", "--describe", "--topic", topic))


def partitions_in(shown: str) -> list[tuple[str, str, str]]:
    return re.findall(r"Leader: (\S+)\s+Replicas: (\S+)\s+Isr: (\S+)", shown)


def test_kafka_topics(cluster: MixedCluster, java: Java, topic: str) -> None:
    java.tool("topics", "--create", "--topic", topic, "--partitions", "3", "--replication-factor", "3",
              "--config", "min.insync.replicas=2")  # fmt: skip
    for partition in range(3):
        cluster.wait_isr(topic, {1, 2, 3}, partition)
    shown = java.tool("topics", "--describe", "--topic", topic)
    assert "min.insync.replicas=2" in shown
    assert len(partitions_in(shown)) == 3
    for leader, replicas, isr in partitions_in(shown):
        assert leader == replicas.split(",")[0]
        assert set(isr.split(",")) == set(replicas.split(",")) == {"1", "2", "3"}
    java.tool("topics", "--alter", "--topic", topic, "--partitions", "4")
    cluster.wait_isr(topic, {1, 2, 3}, 3)
    assert len(described(java, topic)) == 4
    for lack in ("--under-replicated-partitions", "--under-min-isr-partitions"):
        wait_for(lambda lack=lack: not java.tool("topics", "--describe", lack).strip(), f"nothing {lack}")  # type: ignore[misc]
    java.tool("topics", "--delete", "--topic", topic)
    wait_for(lambda: topic not in java.tool("topics", "--list").split(), "the topic to go")


def test_kafka_reassign_partitions(cluster: MixedCluster, java: Java, topic: str, tmp_path: Path) -> None:
    java.tool("topics", "--create", "--topic", topic, "--replica-assignment", "1:2,2:1")
    for partition in range(2):
        produce(cluster, topic, [f"value-{number}" for number in range(500)], partition)
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    proposed = java.tool("reassign", "--generate", "--topics-to-move-json-file", str(topics),
                         "--broker-list", "1,2,3")  # fmt: skip
    current = json.loads(proposed.splitlines()[1])
    assert [each["replicas"] for each in current["partitions"]] == [[1, 2], [2, 1]]
    assert "Proposed partition reassignment" in proposed
    moves = {
        "version": 1,
        "partitions": [
            {"topic": topic, "partition": 0, "replicas": [3, 1]},
            {"topic": topic, "partition": 1, "replicas": [2, 3]},
        ],
    }
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps(moves))
    shown = java.tool("reassign", "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignments" in shown
    wait_for(
        lambda: (
            java.tool("reassign", "--verify", "--reassignment-json-file", str(plan)).count("is completed.")
            == 2
        ),
        "both moves",
        60,
    )
    assert "No partition reassignments found" in java.tool("reassign", "--list")
    assert [replicas for _, replicas, _ in described(java, topic)] == ["3,1", "2,3"]
    cluster.wait_identical(topic, 0, among=[3, 1])
    cluster.wait_identical(topic, 1, among=[2, 3])
    wait_for(lambda: not (cluster.brokers[2].folder / f"{topic}-0").exists(), "the old replica to go")
    java.tool("reassign", "--cancel", "--reassignment-json-file", str(plan))


def test_kafka_reassign_partitions_with_a_throttle(
    cluster: MixedCluster, java: Java, topic: str, tmp_path: Path
) -> None:
    """The tool sets rates and marks, and removes them when all has moved."""
    java.tool("topics", "--create", "--topic", topic, "--replica-assignment", "1:2")
    for start in range(0, 200, 20):
        produce(cluster, topic, [f"{number}".ljust(5000) for number in range(start, start + 20)], 0)
    plan = tmp_path / "plan.json"
    plan.write_text(
        json.dumps({"version": 1, "partitions": [{"topic": topic, "partition": 0, "replicas": [3, 1]}]})
    )
    shown = java.tool("reassign", "--execute", "--reassignment-json-file", str(plan), "--throttle", "50000")
    assert "The inter-broker throttle limit was set to 50000 B/s" in shown

    def of_topic() -> str:
        return java.tool("configs", "--describe", "--entity-type", "topics", "--entity-name", topic)

    def of_broker() -> str:
        return java.tool("configs", "--describe", "--entity-type", "brokers", "--entity-name", "1")

    marked = of_topic()
    assert re.search(r"leader.replication.throttled.replicas=0:1,0:2\b", marked)
    assert re.search(r"follower.replication.throttled.replicas=0:3\b", marked)
    assert "leader.replication.throttled.rate=50000" in of_broker()
    more = ["--additional", "--throttle", "100000000"]
    java.tool("reassign", "--execute", "--reassignment-json-file", str(plan), *more)
    assert "follower.replication.throttled.rate=100000000" in of_broker()

    def verified() -> str:
        return java.tool("reassign", "--verify", "--reassignment-json-file", str(plan))

    wait_for(lambda: "is completed." in verified(), "the move", 120)
    assert "Clearing topic-level throttles" in verified()
    assert "throttled" not in of_topic() + of_broker()
    assert [replicas for _, replicas, _ in described(java, topic)] == ["3,1"]
    cluster.wait_identical(topic, 0, among=[3, 1])


def test_kafka_leader_election(cluster: MixedCluster, java: Java, topic: str) -> None:
    create(cluster, topic)
    cluster.wait_isr(topic, {1, 2, 3})
    node = cluster.node(f"/brokers/topics/{topic}")
    assert node is not None
    cluster.lead(node["partitions"]["0"][1], topic)
    where = ["--topic", topic, "--partition", "0", "--election-type", "preferred"]
    assert "Valid replica already elected" in java.tool("leader-election", *where)
    first, *others = (cluster.node(f"/brokers/topics/{topic}") or {})["partitions"]["0"]
    cluster.reassign(topic, [*others, first])
    assert cluster.state(topic)["leader"] == first
    shown = java.tool("leader-election", *where)
    assert f"Successfully completed leader election (PREFERRED) for partitions {topic}-0" in shown
    wait_for(lambda: cluster.state(topic)["leader"] == others[0], "the preferred leader")
    java.tool("leader-election", "--all-topic-partitions", "--election-type", "preferred")


def test_kafka_consumer_groups(cluster: MixedCluster, java: Java, topic: str) -> None:
    create(cluster, topic, partitions=2)
    java.produce(topic, [f"value-{number}" for number in range(50)])
    group = f"group-of-{topic}"
    assert len(java.consume(topic, 50, "--group", group)) == 50
    assert group in java.tool("groups", "--list").split()
    shown = java.tool("groups", "--describe", "--group", group)
    rows = re.findall(rf"^{group}\s+{topic}\s+\d+\s+(\d+)\s+(\d+)\s+(\d+)", shown, re.MULTILINE)
    assert sum(int(current) for current, _, _ in rows) == 50
    assert {lag for _, _, lag in rows} == {"0"}
    state = java.tool("groups", "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s+127.0.0.1:\d+\s+\([123]\)\s+Empty", state)
    java.tool("groups", "--group", group, "--topic", topic, "--reset-offsets", "--to-earliest", "--execute")
    assert len(java.consume(topic, 50, "--group", group)) == 50
    java.tool("groups", "--delete", "--group", group)
    assert group not in java.tool("groups", "--list").split()


def test_kafka_configs(cluster: MixedCluster, java: Java, topic: str) -> None:
    create(cluster, topic)
    entity = ["--entity-type", "topics", "--entity-name", topic]
    java.tool("configs", *entity, "--alter", "--add-config", "retention.ms=123456,cleanup.policy=compact")
    assert "retention.ms=123456" in java.tool("configs", *entity, "--describe")
    assert cluster.node(f"/config/topics/{topic}") == {
        "version": 1,
        "config": {"retention.ms": "123456", "cleanup.policy": "compact"},
    }
    java.tool("configs", *entity, "--alter", "--delete-config", "cleanup.policy")
    assert cluster.node(f"/config/topics/{topic}") == {"version": 1, "config": {"retention.ms": "123456"}}
    every = ["--entity-type", "brokers", "--entity-default"]
    java.tool("configs", *every, "--alter", "--add-config", "log.retention.ms=7654321")
    assert cluster.node("/config/brokers/<default>") == {
        "version": 1,
        "config": {"log.retention.ms": "7654321"},
    }
    for kind in sorted(set(cluster.kinds.values())):
        one = ["--entity-type", "brokers", "--entity-name", str(cluster.of_kind(kind)[0])]
        java.tool("configs", *one, "--alter", "--add-config", "log.segment.bytes=12345678")
        shown = java.tool("configs", *one, "--describe", "--all")
        assert "DYNAMIC_BROKER_CONFIG:log.segment.bytes=12345678" in shown
        assert "DYNAMIC_DEFAULT_BROKER_CONFIG:log.retention.ms=7654321" in shown
        java.tool("configs", *one, "--alter", "--delete-config", "log.segment.bytes")
    java.tool("configs", *every, "--alter", "--delete-config", "log.retention.ms")
    assert (cluster.node("/config/brokers/<default>") or {})["config"] == {}


def test_other_tools(cluster: MixedCluster, java: Java, topic: str) -> None:
    create(cluster, topic)
    produce(cluster, topic, ["a", "b"])
    shown = java.tool("api-versions")
    assert len(re.findall(r"\(id: [123] rack: null\)", shown)) == 3
    assert f"{topic}:0:2" in java.tool("get-offsets", "--topic", topic)
    dirs = java.tool("log-dirs", "--describe", "--topic-list", topic)
    reported = json.loads(dirs.splitlines()[-1])
    assert sorted(broker["broker"] for broker in reported["brokers"]) == [1, 2, 3]
    assert all(
        len(folder["partitions"]) == 1 and folder["error"] is None
        for broker in reported["brokers"]
        for folder in broker["logDirs"]
    )


# ---- znodes


def shape(value: object) -> object:
    """What there is beside the values: names in order, and types."""
    if isinstance(value, dict):
        return [(name, shape(each)) for name, each in value.items()]
    if isinstance(value, list):
        return "list"
    return type(value).__name__


def test_nodes_are_written_as_kafka_writes_them(cluster: MixedCluster, topic: str) -> None:
    """Whatever kind of broker writes a node, its names, their order and types are Kafka's."""
    found = {}
    for kind in sorted(set(cluster.kinds.values())):
        cluster.move_controller(lambda broker, kind=kind: cluster.kinds[broker] == kind)  # type: ignore[misc]
        name = f"{topic}-{kind}"
        create(cluster, name, configs={"retention.ms": "1000000"})
        cluster.wait_isr(name, {1, 2, 3})
        cluster.lead(cluster.of_kind(kind)[0], name)
        found[kind] = {
            "topic": shape(cluster.node(f"/brokers/topics/{name}")),
            "state": shape(cluster.node(STATE.format(name, 0))),
            "controller": shape(cluster.node("/controller")),
            "config": shape(cluster.node(f"/config/topics/{name}")),
            "broker": shape(cluster.node(f"/brokers/ids/{cluster.of_kind(kind)[0]}")),
            "id": shape(cluster.node("/cluster/id")),
        }
    levels = ("features", [("transaction.version", [("min_version", "int"), ("max_version", "int")])])
    ours = {**KAFKAS, "broker": [levels, *KAFKAS["broker"][1:]]}
    for kind, nodes in found.items():
        assert nodes == (ours if kind == "ottla" else KAFKAS), kind
    # Notifications that Kafka's brokers wouldn't understand; nothing else is Ottla's own.
    assert cluster.zk.get_children("/ottla") == ["config_changes"]
    known = set(cluster.zk.get_children("/"))
    assert known - {"feature", "ottla"} == {
        "admin", "brokers", "cluster", "config", "consumers", "controller", "controller_epoch",
        "isr_change_notification", "latest_producer_id_block", "log_dir_event_notification",
    }  # fmt: skip


KAFKAS: dict[str, Any] = {
    "topic": [
        ("partitions", [("0", "list")]),
        ("topic_id", "str"),
        ("adding_replicas", []),
        ("removing_replicas", []),
        ("version", "int"),
    ],
    "state": [
        ("controller_epoch", "int"),
        ("leader", "int"),
        ("version", "int"),
        ("leader_epoch", "int"),
        ("isr", "list"),
    ],
    "controller": [
        ("version", "int"),
        ("brokerid", "int"),
        ("timestamp", "str"),
        ("kraftControllerEpoch", "int"),
    ],
    "config": [("version", "int"), ("config", [("retention.ms", "str")])],
    "broker": [
        ("features", []),
        ("listener_security_protocol_map", [("PLAINTEXT", "str")]),
        ("endpoints", "list"),
        ("jmx_port", "int"),
        ("port", "int"),
        ("host", "str"),
        ("version", "int"),
        ("timestamp", "str"),
    ],
    "id": [("version", "str"), ("id", "str")],
}
"""As Kafka 3.9.1 writes them: the test holds for the nodes of its own brokers, too."""
