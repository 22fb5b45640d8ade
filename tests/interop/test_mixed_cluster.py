"""Ottla's broker in one cluster with two of Apache Kafka 3.9.1, on one ZooKeeper: each leads, follows and controls."""

from __future__ import annotations

import itertools
import re
import signal
import time
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from harness import maven
from harness.java import Unavailable
from tests.interop.conftest import java_tools
from tests.interop.mixed import MixedCluster
from tests.support.traffic import Stream, check_all_there, consume, create, produce
from tests.support.traffic import admin as confluent
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_protocol.partitioning import partition_for

OTTLA = 3
KAFKA = 1
ALL = {1, 2, 3}
OFFSETS_PARTITIONS = 5
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("mixed")
    zookeeper = ZooKeeperProcess(folder / "zookeeper")
    cluster = MixedCluster(folder, zookeeper.start())
    try:
        yield cluster.start()
        assert not cluster.complaints()
    finally:
        cluster.kill()
        zookeeper.kill()


@pytest.fixture
def cluster(running: MixedCluster) -> MixedCluster:
    """All brokers are there; one that a failed test has left dead is started again."""
    running.clear()
    for number, broker in running.brokers.items():
        if broker.running:
            running.thaw(number)
        else:
            broker.kill()
            broker.start()
    running.wait_complete(60)
    return running


@pytest.fixture
def topic(request: pytest.FixtureRequest) -> str:
    name = re.sub(r"[^a-z]+", "-", request.node.name.removeprefix("test_")).strip("-")
    return f"{name}-{next(_numbers)}"


def values(count: int, prefix: str = "value") -> list[str]:
    return [f"{prefix}-{number}" for number in range(count)]


def value_of(message: Any) -> str:
    value: bytes = message.value()
    return value.decode()


def agree_on_epochs(cluster: MixedCluster, topic: str, partition: int = 0) -> None:
    """All replicas have the same history of leaders: each, when it leads, tells the same end of every epoch."""
    state = cluster.state(topic, partition)
    histories = {}
    for broker in cluster.brokers:
        cluster.lead(broker, topic, partition)
        # The epochs of these elections have no records.
        histories[broker] = [
            cluster.end_of_epoch(broker, topic, epoch, partition)
            for epoch in range(state["leader_epoch"] + 1)
        ]
    assert len(set(map(tuple, histories.values()))) == 1, histories


@pytest.mark.parametrize("controller", ["ottla", "kafka"])
def test_records_through_every_broker(cluster: MixedCluster, topic: str, controller: str) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller)
    create(cluster, topic, partitions=3)
    for partition in range(3):
        cluster.wait_isr(topic, ALL, partition)
    assert {cluster.leader(topic, partition) for partition in range(3)} == ALL
    for partition in range(3):
        produce(cluster, topic, values(200, f"p{partition}"), partition)
    for number, broker in cluster.brokers.items():
        consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": f"{topic}-{number}"})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(3)])
        found: list[str] = []
        deadline = time.monotonic() + 90
        while len(found) < 600 and time.monotonic() < deadline:
            found += [value_of(each) for each in consumer.consume(100, 0.2) if not each.error()]
        consumer.close()
        assert sorted(found) == sorted(value for p in range(3) for value in values(200, f"p{p}"))
    for partition in range(3):
        assert cluster.wait_identical(topic, partition)
        agree_on_epochs(cluster, topic, partition)


def test_topic_ids_agree(cluster: MixedCluster, topic: str) -> None:
    for kind in ("ottla", "kafka"):
        cluster.move_controller(lambda broker, kind=kind: cluster.kinds[broker] == kind)  # type: ignore[misc]
        create(cluster, f"{topic}-{kind}")
        cluster.wait_isr(f"{topic}-{kind}", ALL)
        node = cluster.node(f"/brokers/topics/{topic}-{kind}")
        assert node is not None
        files = {
            (broker.folder / f"{topic}-{kind}-0" / "partition.metadata").read_text()
            for broker in cluster.brokers.values()
        }
        assert files == {f"version: 0\ntopic_id: {node['topic_id']}"}
        reported = {cluster.metadata(n, [f"{topic}-{kind}"]).topics[0].topic_id for n in cluster.brokers}
        assert len(reported) == 1


@pytest.mark.parametrize("controller", ["ottla", "kafka"])
def test_leadership_moves_by_preferred_election(cluster: MixedCluster, topic: str, controller: str) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller)
    create(cluster, topic, configs={"min.insync.replicas": "2"})
    cluster.wait_isr(topic, ALL)
    stream = Stream(cluster, topic)
    for broker in (3, 1, 3, 2, 3):
        cluster.lead(broker, topic)
        stream.wait_for_more(50)
    acked = stream.stop()
    cluster.wait_isr(topic, ALL)
    check_all_there(cluster, topic, acked)
    cluster.wait_identical(topic)
    agree_on_epochs(cluster, topic)
    state = cluster.state(topic)
    assert {cluster.reported(n, topic).leader_epoch for n in cluster.brokers} == {state["leader_epoch"]}


@pytest.mark.parametrize("controller", ["ottla", "kafka"])
def test_replicas_move_to_the_other_kind(cluster: MixedCluster, topic: str, controller: str) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller)
    create(cluster, topic, configs={"segment.bytes": "400000"})
    cluster.wait_isr(topic, ALL)
    cluster.reassign(topic, [KAFKA])
    stream = Stream(cluster, topic)
    for number, replicas in enumerate(([OTTLA], [2], [OTTLA, KAFKA], [KAFKA], [2, OTTLA])):
        # Several segments in one copy, while records go on.
        produce(cluster, topic, [f"{number}-{'x' * 1000}-{each}" for each in range(300)])
        stream.wait_for_more()
        cluster.reassign(topic, replicas)
        cluster.wait_isr(topic, set(replicas))
        stream.wait_for_more()
        cluster.wait_folders(topic, set(replicas))
    cluster.reassign(topic, sorted(ALL))
    cluster.wait_isr(topic, ALL)
    acked = stream.stop()
    found = consume(cluster, topic, len(acked) + 1500, topic)
    assert [value for value in found if value.isdigit()] == acked
    assert len(found) == len(set(found)) == len(acked) + 1500
    cluster.wait_identical(topic)
    agree_on_epochs(cluster, topic)


def test_controllership_moves_while_records_flow(cluster: MixedCluster, topic: str) -> None:
    create(cluster, topic, partitions=3, configs={"min.insync.replicas": "2"})
    stream = Stream(cluster, topic)
    for kind in ("ottla", "kafka", "ottla", "kafka"):
        cluster.move_controller(lambda broker, kind=kind: cluster.kinds[broker] == kind)  # type: ignore[misc]
        stream.wait_for_more(50)
        create(cluster, f"{topic}-{next(_numbers)}", partitions=6)
    acked = stream.stop()
    found = consume(cluster, topic, len(acked))
    assert sorted(found) == sorted(acked)
    for partition in range(3):
        cluster.wait_isr(topic, ALL, partition)
        cluster.wait_identical(topic, partition)


@pytest.mark.parametrize("controller", ["ottla", "kafka"])
@pytest.mark.parametrize("how", ["kill", "stop"])
@pytest.mark.parametrize("leader", [OTTLA, KAFKA])
def test_a_leader_goes_and_comes_back(
    cluster: MixedCluster, topic: str, leader: int, how: str, controller: str
) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller and broker != KAFKA)
    create(cluster, topic, configs={"min.insync.replicas": "2"})
    cluster.lead(leader, topic)
    cluster.wait_isr(topic, ALL)
    stream = Stream(cluster, topic)
    stream.wait_for_more()
    if how == "kill":
        cluster.brokers[leader].kill()
    else:
        cluster.brokers[leader].stop(60)
    stream.wait_for_more(100)
    assert cluster.leader(topic) != leader
    cluster.wait_isr(topic, ALL - {leader})
    cluster.brokers[leader].start()
    cluster.wait_isr(topic, ALL)
    stream.wait_for_more()
    cluster.lead(leader, topic)
    stream.wait_for_more()
    acked = stream.stop()
    check_all_there(cluster, topic, acked)
    cluster.wait_identical(topic)
    agree_on_epochs(cluster, topic)


@pytest.mark.parametrize(("leader", "follower"), [(OTTLA, KAFKA), (KAFKA, OTTLA)])
@pytest.mark.parametrize("controller", ["ottla", "kafka"])
def test_a_follower_that_stalls_leaves_the_isr_and_returns(
    cluster: MixedCluster, topic: str, leader: int, follower: int, controller: str
) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller and broker != KAFKA)
    create(cluster, topic, configs={"min.insync.replicas": "2"})
    cluster.lead(leader, topic)
    cluster.wait_isr(topic, ALL)
    stream = Stream(cluster, topic)
    stream.wait_for_more()
    cluster.brokers[follower].send_signal(signal.SIGSTOP)
    wait_for(lambda: set(cluster.state(topic)["isr"]) == ALL - {follower}, "a smaller set in sync", 90)
    stream.wait_for_more(100)
    cluster.brokers[follower].send_signal(signal.SIGCONT)
    cluster.wait_isr(topic, ALL)
    stream.wait_for_more()
    acked = stream.stop()
    check_all_there(cluster, topic, acked)
    cluster.wait_identical(topic)
    agree_on_epochs(cluster, topic)


def test_offsets_move_between_coordinators(cluster: MixedCluster, topic: str) -> None:
    create(cluster, topic)
    produce(cluster, topic, values(10))
    group = f"group-of-{topic}"
    assert consume(cluster, topic, 10, group) == values(10)
    partition = partition_for(group, OFFSETS_PARTITIONS)
    cluster.wait_isr("__consumer_offsets", ALL, partition)
    for turn, broker in enumerate((OTTLA, KAFKA, OTTLA, 2)):
        cluster.lead(broker, "__consumer_offsets", partition)
        produce(cluster, topic, [f"turn-{turn}"])
        # What was read before is not read again: the offset went along.
        assert consume(cluster, topic, 1, group) == [f"turn-{turn}"]
    assert cluster.wait_identical("__consumer_offsets", partition)


def test_a_member_stays_while_its_coordinator_moves(cluster: MixedCluster, topic: str) -> None:
    create(cluster, topic)
    group = f"group-of-{topic}"
    consumer = Consumer(
        {"bootstrap.servers": cluster.bootstrap, "group.id": group, "auto.offset.reset": "earliest",
         "session.timeout.ms": 10000, "heartbeat.interval.ms": 300, "enable.auto.commit": False}
    )  # fmt: skip
    assigned: list[object] = []
    try:
        consumer.subscribe([topic], on_assign=lambda _, partitions: assigned.append(partitions))
        wait_for(lambda: consumer.poll(0.1) is None and consumer.assignment(), "an assignment", 90)
        partition = partition_for(group, OFFSETS_PARTITIONS)
        cluster.wait_isr("__consumer_offsets", ALL, partition)
        for turn, broker in enumerate((OTTLA, KAFKA, OTTLA)):
            cluster.lead(broker, "__consumer_offsets", partition)
            produce(cluster, topic, [f"turn-{turn}"])
            message = wait_for(lambda: consumer.poll(0.2), "the record", 90)
            assert message is not None
            assert value_of(message) == f"turn-{turn}"
            committed = consumer.commit(message=message, asynchronous=False)
            assert committed[0].offset == turn + 1
    finally:
        consumer.close()
    assert len(assigned) == 1  # the group has never begun again


@pytest.mark.parametrize("controller", ["ottla", "kafka"])
@pytest.mark.parametrize("through", [OTTLA, KAFKA])
def test_topics_are_grown_configured_and_deleted(
    cluster: MixedCluster, topic: str, through: int, controller: str
) -> None:
    cluster.move_controller(lambda broker: cluster.kinds[broker] == controller)
    create(cluster, topic, partitions=2)
    client = confluent.AdminClient({"bootstrap.servers": cluster.brokers[through].bootstrap})
    client.create_partitions([confluent.NewPartitions(topic, 4)], operation_timeout=60)[topic].result(60)
    for partition in range(4):
        cluster.wait_isr(topic, ALL, partition)
    for name, value in (("retention.ms", "1234567"), ("segment.bytes", "300000")):
        entry = confluent.ConfigEntry(name, value, incremental_operation=confluent.AlterConfigOpType.SET)
        resource = confluent.ConfigResource(
            confluent.ConfigResource.Type.TOPIC, topic, incremental_configs=[entry]
        )
        client.incremental_alter_configs([resource])[resource].result(60)
    for broker in cluster.brokers.values():
        wait_for(lambda: _config(broker.bootstrap, topic, "segment.bytes") == "300000", "the config")  # noqa: B023
        assert _config(broker.bootstrap, topic, "retention.ms") == "1234567"
    produce(cluster, topic, values(100))
    assert sorted(consume(cluster, topic, 100, topic)) == sorted(values(100))
    client.delete_topics([topic], operation_timeout=60)[topic].result(60)
    wait_for(
        lambda: all(cluster.metadata(n, [topic]).topics[0].error_code == 3 for n in cluster.brokers),
        "the topic to be unknown",
    )
    wait_for(lambda: cluster.node(f"/brokers/topics/{topic}") is None, "its node to go")
    wait_for(
        lambda: not [f for b in cluster.brokers.values() for f in b.folder.glob(f"{topic}-*")],
        "its folders to go",
    )
    create(cluster, topic)
    cluster.wait_isr(topic, ALL)
    produce(cluster, topic, ["again"])
    assert consume(cluster, topic, 1, f"{topic}-again") == ["again"]
    cluster.wait_identical(topic)


def _config(bootstrap: str, topic: str, name: str) -> str | None:
    client = confluent.AdminClient({"bootstrap.servers": bootstrap})
    resource = confluent.ConfigResource(confluent.ConfigResource.Type.TOPIC, topic)
    found = client.describe_configs([resource])[resource].result(60)
    value: str | None = found[name].value
    return value


def test_kafka_reads_what_ottla_replicated(
    cluster: MixedCluster, topic: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    create(cluster, topic, configs={"segment.bytes": "100000", "index.interval.bytes": "1024"})
    for leader in (KAFKA, OTTLA):
        cluster.lead(leader, topic)
        for begin in range(0, 20_000, 2000):
            # A batch may not be larger than a segment.
            produce(cluster, topic, values(20_000, f"from-{leader}")[begin : begin + 2000])
    cluster.wait_identical(topic)
    java = java_tools(cluster.bootstrap, maven.KAFKA_VERSION, tmp_path_factory.mktemp("tools"))
    folder = cluster.brokers[OTTLA].folder / f"{topic}-0"
    for ending in ("log", "index", "timeindex"):
        files = sorted(folder.glob(f"*.{ending}"))
        assert len(files) >= 3
        # The last indexes are as long as they may become while the broker runs.
        done = files if ending == "log" else files[:-1]
        java.dump_log(done)
