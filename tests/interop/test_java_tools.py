"""Kafka's own command-line tools, unmodified, do their work against the broker."""

from __future__ import annotations

import asyncio
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from harness import javatools, wire
from harness.brokers import HOST, Broker, Ottla
from tests.interop.conftest import KIND, SETTINGS, MakeTopic
from tests.interop.support import Java, json_lines, run
from tests.support.transactions import hang
from tests.support.waiting import wait_for

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def test_console_round_trip_with_keys_and_headers(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic()
    lines = [f"trace:{number},kind:test\tkey-{number % 7}\tvalue {number}" for number in range(200)]
    java.produce(topic, lines, "--property", "parse.key=true", "--property", "parse.headers=true")
    shown = ["print.headers=true", "print.key=true", "print.offset=true", "print.partition=true"]
    options = [word for one in shown for word in ("--property", one)]
    got = java.consume(topic, 200, *options)
    assert got == [
        f"Partition:0\tOffset:{number}\ttrace:{number},kind:test\tkey-{number % 7}\tvalue {number}"
        for number in range(200)
    ]


@pytest.mark.parametrize("codec", CODECS)
def test_performance_tools_with_codec(java: Java, broker: Broker, new_topic: MakeTopic, codec: str) -> None:
    topic = new_topic(partitions=3)
    assert javatools.produce(broker.address, topic, 20_000, 100, "all", codec) > 0
    assert javatools.consume(broker.address, topic, 20_000) > 0


def test_end_to_end_latency_tool(java: Java, broker: Broker, new_topic: MakeTopic) -> None:
    assert javatools.end_to_end(broker.address, new_topic(), 200, 100)["mean"] > 0


@pytest.mark.parametrize("acks", ["0", "1", "-1"])
def test_verifiable_producer_and_consumer(java: Java, new_topic: MakeTopic, acks: str) -> None:
    topic = new_topic(partitions=2)
    sent = json_lines(
        java.tool("verifiable-producer", "--topic", topic, "--max-messages", "3000", "--acks", acks)
    )
    summary = sent[-1]
    assert summary["name"] == "tool_data"
    assert (summary["sent"], summary["acked"]) == (3000, 3000)
    reported = json_lines(
        java.tool(
            "verifiable-consumer",
            "--topic",
            topic,
            "--group-id",
            topic,
            "--max-messages",
            "3000",
            "--reset-policy",
            "earliest",
            "--verbose",
        )
    )
    values = sorted(int(event["value"]) for event in reported if event["name"] == "record_data")
    assert values == list(range(3000))
    committed = [event for event in reported if event["name"] == "offsets_committed"]
    assert committed
    assert all(event["success"] for event in committed)


def test_topic_command_from_creation_to_deletion(java: Java, request: pytest.FixtureRequest) -> None:
    topic = "topic-command"
    java.tool(
        "topics", "--create", "--topic", topic, "--partitions", "2", "--replication-factor", "1",
        "--config", "retention.ms=3600000",
    )  # fmt: skip
    described = java.tool("topics", "--describe", "--topic", topic)
    assert re.search(r"PartitionCount: 2\s+ReplicationFactor: 1\s+Configs: .*retention.ms=3600000", described)
    assert described.count("Leader: ") == 2
    java.tool("topics", "--alter", "--topic", topic, "--partitions", "5")
    assert java.tool("topics", "--describe", "--topic", topic).count("Leader: ") == 5
    assert topic in java.tool("topics", "--list").split()
    assert java.tool("topics", "--describe", "--unavailable-partitions") == ""
    java.tool("topics", "--delete", "--topic", topic)
    assert topic not in java.tool("topics", "--list").split()


def test_config_command_sets_describes_and_deletes(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic()
    entity = ["--entity-type", "topics", "--entity-name", topic]
    java.tool("configs", *entity, "--alter", "--add-config", "max.message.bytes=54321,cleanup.policy=compact")
    shown = java.tool("configs", *entity, "--describe")
    assert "max.message.bytes=54321" in shown
    assert "DYNAMIC_TOPIC_CONFIG:max.message.bytes=54321" in shown
    assert "cleanup.policy=compact" in shown
    every = java.tool("configs", *entity, "--describe", "--all")
    assert "segment.bytes=1073741824" in every
    assert "DEFAULT_CONFIG:log.segment.bytes=1073741824" in every
    java.tool("configs", *entity, "--alter", "--delete-config", "max.message.bytes,cleanup.policy")
    assert "54321" not in java.tool("configs", *entity, "--describe")


def test_config_command_shows_the_broker(java: Java) -> None:
    shown = java.tool("configs", "--entity-type", "brokers", "--entity-default", "--describe")
    assert "Default config" in shown
    every = java.tool(
        "configs", "--entity-type", "brokers", "--entity-name", _broker_id(java), "--describe", "--all"
    )
    assert "num.partitions=1 sensitive=false" in every
    assert "log.segment.bytes=1073741824" in every


def _broker_id(java: Java) -> str:
    found = re.search(r"\(id: (\d+) rack", java.tool("api-versions"))
    assert found is not None
    return found[1]


def test_api_versions_command(java: Java) -> None:
    shown = java.tool("api-versions")
    for line in ["Produce(0): 0 to ", "Fetch(1): ", "ApiVersions(18): 0 to ", "DescribeCluster(60): 0"]:
        assert line in shown


def test_cluster_id_stays_the_same(java: Java, broker: Broker) -> None:
    first, second = (
        run(
            java.command(
                "org.apache.kafka.tools.ClusterTool", "cluster-id", "--bootstrap-server", broker.address
            )
        )
        for _ in range(2)
    )
    assert re.fullmatch(r"Cluster ID: [\w-]{22}\n", first)
    assert first == second


def test_get_offsets_by_time(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic(partitions=2)
    assert java.tool("get-offsets", "--topic", topic).split() == [f"{topic}:0:0", f"{topic}:1:0"]
    java.produce(topic, [str(number) for number in range(100)])
    offsets = dict(line.rsplit(":", 1) for line in java.tool("get-offsets", "--topic", topic).split())
    assert sum(map(int, offsets.values())) == 100
    earliest = java.tool("get-offsets", "--topic", topic, "--time", "earliest").split()
    assert earliest == [f"{topic}:0:0", f"{topic}:1:0"]
    newest = java.tool("get-offsets", "--topic", topic, "--time", "max-timestamp").split()
    assert newest
    old = java.tool("get-offsets", "--topic", topic, "--time", "1000").split()
    assert all(line.endswith(":0") for line in old)


def test_consumer_group_command(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic()
    group = f"group-{topic}"
    java.produce(topic, [str(number) for number in range(50)])
    java.consume(topic, 50, "--group", group)
    assert group in java.tool("groups", "--list").split()
    row = _lag_row(java, group, topic)
    assert (row["CURRENT-OFFSET"], row["LOG-END-OFFSET"], row["LAG"]) == ("50", "50", "0")
    state = java.tool("groups", "--describe", "--group", group, "--state")
    assert re.search(rf"{group}\s.*\sEmpty\s+0", state)
    reset = ["--reset-offsets", "--group", group, "--topic", topic, "--to-offset", "20", "--execute"]
    java.tool("groups", *reset)
    assert _lag_row(java, group, topic)["LAG"] == "30"
    assert len(java.consume(topic, 30, "--group", group)) == 30
    java.tool("groups", "--delete-offsets", "--group", group, "--topic", topic)
    java.tool("groups", "--delete", "--group", group)
    assert group not in java.tool("groups", "--list").split()


def _lag_row(java: Java, group: str, topic: str) -> dict[str, str]:
    lines = [line.split() for line in java.tool("groups", "--describe", "--group", group).splitlines()]
    head = next(line for line in lines if line[:1] == ["GROUP"])
    row = next(line for line in lines if line[:2] == [group, topic])
    return dict(zip(head, row, strict=False))


def test_delete_records_command(java: Java, new_topic: MakeTopic, tmp_path: Path) -> None:
    topic = new_topic()
    java.produce(topic, [str(number) for number in range(40)])
    wanted = tmp_path / "offsets.json"
    wanted.write_text(
        json.dumps({"partitions": [{"topic": topic, "partition": 0, "offset": 15}], "version": 1})
    )
    assert "low_watermark: 15" in java.tool("delete-records", "--offset-json-file", str(wanted))
    assert java.consume(topic, 25) == [str(number) for number in range(15, 40)]
    assert java.tool("get-offsets", "--topic", topic, "--time", "earliest").split() == [f"{topic}:0:15"]


def test_log_dirs_command(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic(partitions=2)
    java.produce(topic, ["x" * 1000])
    shown = json_lines(java.tool("log-dirs", "--describe", "--topic-list", topic))[0]
    folders = shown["brokers"][0]["logDirs"]
    assert folders[0]["error"] is None
    sizes = {part["partition"]: part["size"] for part in folders[0]["partitions"]}
    assert set(sizes) == {f"{topic}-0", f"{topic}-1"}
    assert sum(sizes.values()) > 1000


def test_describe_producers(java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic()
    java.produce(topic, ["one", "two"], "--producer-property", "enable.idempotence=true")
    shown = java.tool("transactions", "describe-producers", "--topic", topic, "--partition", "0").splitlines()
    assert shown[0].split()[:3] == ["ProducerId", "ProducerEpoch", "LatestCoordinatorEpoch"]
    assert len(shown) == 2
    assert shown[1].split()[3] == "1"


def test_hanging_transactions(java: Java, tmp_path: Path) -> None:
    """A transaction that its coordinator doesn't know is found and aborted."""
    broker = KIND(tmp_path / "broker", {**SETTINGS, "transaction.partition.verification.enable": "false"})
    broker.start()
    try:
        tools = Java(broker.address, java.version, java.libs, java.log4j)
        connection = wire.Connection(HOST, broker.port)
        connection.create("t", 1)
        connection.close()
        named: Any = SimpleNamespace(bootstrap=broker.address, port=broker.port)
        producer = str(asyncio.run(hang(named, "t", "left")))
        listed = tools.tool("transactions", "list").splitlines()
        assert [line.split()[0] for line in listed] == ["TransactionalId", "left"]
        assert (listed[1].split()[2], listed[1].split()[3]) == (producer, "Empty")
        described = tools.tool("transactions", "describe", "--transactional-id", "left").splitlines()
        assert described[1].split()[1:5] == ["left", producer, "1", "Empty"]
        find = ["find-hanging", "--topic", "t", "--partition", "0", "--max-transaction-timeout", "0"]
        (_, found) = tools.tool("transactions", *find).splitlines()
        assert found.split()[:4] == ["t", "0", producer, "1"]
        tools.tool("transactions", "abort", "--topic", "t", "--partition", "0", "--start-offset", "0")
        assert len(tools.tool("transactions", *find).splitlines()) == 1
    finally:
        broker.remove()


def test_users_and_addresses_have_no_settings(java: Java) -> None:
    for kind in ("users", "clients", "ips"):
        assert java.tool("configs", "--describe", "--entity-type", kind).strip() == ""


def test_client_metrics(java: Java) -> None:
    wanted = ["--metrics", "org.apache.kafka.producer.,org.apache.kafka.consumer.", "--interval", "30000"]
    java.tool("client-metrics", "--alter", "--name", "all", *wanted, "--match", "client_id=billing.*")
    assert java.tool("client-metrics", "--list").split() == ["all"]
    shown = java.tool("client-metrics", "--describe", "--name", "all")
    for setting in ("interval.ms=30000", "match=client_id=billing.*", f"metrics={wanted[1]}"):
        assert setting in shown, shown
    java.tool("client-metrics", "--delete", "--name", "all")
    assert java.tool("client-metrics", "--list").strip() == ""


@pytest.mark.skipif(KIND is not Ottla, reason="the Kafka of these tests is of KRaft, and has other features")
def test_features_are_moved(java: Java) -> None:
    def level() -> str:
        shown = java.tool("features", "describe")
        assert shown.count("Feature:") == 1
        assert re.search(
            r"Feature: transaction.version\s+SupportedMinVersion: 0\s+SupportedMaxVersion: 2", shown
        )
        found = re.search(r"FinalizedVersionLevel: (\S+)", shown)
        assert found is not None
        return found[1]

    assert level() == "2"
    for command, to, after in (("downgrade", 1, "1"), ("downgrade", 0, "0"), ("upgrade", 2, "2")):
        java.tool("features", command, "--feature", f"transaction.version={to}")
        assert level() == after
    with pytest.raises(pytest.fail.Exception, match="the provided feature is not supported"):
        java.tool("features", "upgrade", "--feature", "metadata.version=20")


def test_acls_are_refused_as_without_an_authorizer(java: Java) -> None:
    with pytest.raises(pytest.fail.Exception, match="No Authorizer is configured on the broker"):
        java.tool("acls", "--list")


def test_one_broker_elects_and_reassigns(java: Java, new_topic: MakeTopic, tmp_path: Path) -> None:
    topic = new_topic()
    shown = java.tool("leader-election", "--election-type", "preferred", "--topic", topic, "--partition", "0")
    assert f"Valid replica already elected for partitions {topic}-0" in shown
    assert "No partition reassignments found" in java.tool("reassign", "--list")
    topics = tmp_path / "topics.json"
    topics.write_text(json.dumps({"version": 1, "topics": [{"topic": topic}]}))
    described = json.loads(java.tool("log-dirs", "--describe").splitlines()[-1])["brokers"][0]
    number, folder = described["broker"], described["logDirs"][0]["logDir"]
    plan = tmp_path / "plan.json"
    moves = [{"topic": topic, "partition": 0, "replicas": [number], "log_dirs": [folder]}]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    shown = java.tool("reassign", "--execute", "--reassignment-json-file", str(plan))
    assert "Successfully started partition reassignment" in shown
    shown = java.tool("reassign", "--verify", "--reassignment-json-file", str(plan))
    assert f"Reassignment of partition {topic}-0 is completed." in shown


def test_reassignment_between_data_folders(java: Java, tmp_path: Path) -> None:
    folders = [str(tmp_path / name) for name in ("one", "two")]
    broker = KIND(tmp_path / "broker", SETTINGS)
    broker.data = Path(",".join(folders))
    broker.start()
    try:
        tools = Java(broker.address, java.version, java.libs, java.log4j)
        tools.tool("topics", "--create", "--topic", "moved", "--partitions", "1", "--replication-factor", "1")
        lines = [str(number) for number in range(2000)]
        tools.produce("moved", lines)
        described = json.loads(tools.tool("log-dirs", "--describe").splitlines()[-1])["brokers"][0]
        assert {each["logDir"] for each in described["logDirs"]} == set(folders)
        number, here = described["broker"], _folder_of(described, "moved-0")
        there = next(each for each in folders if each != here)
        plan = tmp_path / "plan.json"
        moves = [{"topic": "moved", "partition": 0, "replicas": [number], "log_dirs": [there]}]
        plan.write_text(json.dumps({"version": 1, "partitions": moves}))
        given = ["--reassignment-json-file", str(plan)]
        shown = tools.tool("reassign", "--execute", "--replica-alter-log-dirs-throttle", "100000000", *given)
        assert (
            f"Successfully started moving log directory to {there} for replica moved-0 with broker {number}"
            in shown
        )
        wait_for(
            lambda: (
                f"Reassignment of replica moved-0-{number} completed successfully."
                in tools.tool("reassign", "--verify", *given)
            ),
            "the move to be done",
        )
        described = json.loads(tools.tool("log-dirs", "--describe").splitlines()[-1])["brokers"][0]
        assert _folder_of(described, "moved-0") == there
        assert tools.consume("moved", 2000) == lines
    finally:
        broker.remove()


def _folder_of(described: dict[str, Any], partition: str) -> str:
    """The data folder of a partition that doesn't move."""
    found = [
        (each["logDir"], part["isFuture"], part["offsetLag"])
        for each in described["logDirs"]
        for part in each["partitions"]
        if part["partition"] == partition
    ]
    assert len(found) == 1, found
    assert found[0][1:] == (False, 0)
    return str(found[0][0])


def test_tools_of_other_versions(other_java: Java, new_topic: MakeTopic) -> None:
    topic = new_topic()
    group = f"group-{topic}"
    other_java.produce(
        topic, [f"{number % 5}\t{number}" for number in range(300)], "--property", "parse.key=true"
    )
    got = other_java.consume(topic, 300, "--property", "print.key=true", "--group", group)
    assert got == [f"{number % 5}\t{number}" for number in range(300)]
    assert "PartitionCount: 1" in other_java.tool("topics", "--describe", "--topic", topic)
    row = _lag_row(other_java, group, topic)
    assert (row["CURRENT-OFFSET"], row["LAG"]) == ("300", "0")
