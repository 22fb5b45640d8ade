"""Transactions in one cluster of Ottla and Apache Kafka 3.9.1: either coordinates, leads and serves the other's."""

from __future__ import annotations

import itertools
from collections.abc import Iterator

import pytest
from harness import maven
from harness.java import Unavailable
from tests.clients.transactional import Confluent, committed_offset, read_confluent
from tests.interop.mixed import MixedCluster
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla_protocol.partitioning import partition_for

STATE_TOPIC = "__transaction_state"
PARTITIONS = 2
KAFKA, OTTLA = 1, 3
_numbers = itertools.count(1)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[MixedCluster]:
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("mixed")
    zookeeper = ZooKeeperProcess(folder / "zookeeper")
    settings = {
        "transaction.state.log.num.partitions": PARTITIONS,
        "transaction.state.log.replication.factor": 3,
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
        "offsets.topic.num.partitions": 2,
    }
    made = MixedCluster(folder, zookeeper.start(), settings=settings)
    try:
        made.start()
        # Makes the internal topics.
        first = Confluent(made.bootstrap, "first")
        create(made, "first", partitions=1)
        first.begin()
        first.send_offsets({("first", 0): 1}, "first")
        first.commit()
        first.close()
        yield made
        assert not made.complaints()
    finally:
        made.kill()
        zookeeper.kill()


def state(cluster: MixedCluster, transactional_id: str) -> str:
    number = cluster.leader(STATE_TOPIC, partition_for(transactional_id, PARTITIONS))
    with Wire(cluster.brokers[number].port) as wire:
        [found] = wire.call(
            DescribeTransactionsRequest(transactional_ids=[transactional_id]), 0
        ).transaction_states
        return str(found.transaction_state)


@pytest.mark.parametrize("leader", [KAFKA, OTTLA], ids=["on kafka", "on ottla"])
@pytest.mark.parametrize("coordinator", [KAFKA, OTTLA], ids=["by kafka", "by ottla"])
def test_either_coordinates_what_either_leads(cluster: MixedCluster, coordinator: int, leader: int) -> None:
    number = next(_numbers)
    topic, tx, group = f"t-{number}", f"tx-{number}", f"group-{number}"
    create(cluster, topic, partitions=1)
    cluster.lead(leader, topic)
    cluster.lead(coordinator, STATE_TOPIC, partition_for(tx, PARTITIONS))
    cluster.lead(leader, "__consumer_offsets", partition_for(group, 2))
    producer = Confluent(cluster.bootstrap, tx)
    for offset in range(4):
        producer.begin()
        producer.send(topic, b"%d" % offset)
        producer.send_offsets({(topic, 0): offset}, group)
        producer.flush()
        if offset % 2:
            producer.abort()
        else:
            producer.commit()
    wait_for(lambda: state(cluster, tx) == "CompleteAbort", "the markers")
    assert read_confluent(cluster.bootstrap, topic) == [b"0", b"2"]
    wait_for(lambda: committed_offset(cluster.bootstrap, group, topic) == 2, "the offset")
    producer.close()


def _new_transaction(cluster: MixedCluster) -> tuple[str, str, str, list[tuple[str, int]]]:
    """A new topic, a transactional id, a group, and the partitions that have what a transaction of them writes."""
    number = next(_numbers)
    topic, tx, group = f"t-{number}", f"tx-{number}", f"group-{number}"
    create(cluster, topic, partitions=1)
    state, offsets = partition_for(tx, PARTITIONS), partition_for(group, 2)
    return topic, tx, group, [(topic, 0), (STATE_TOPIC, state), ("__consumer_offsets", offsets)]


@pytest.mark.parametrize(("before", "after"), [(KAFKA, OTTLA), (OTTLA, KAFKA)], ids=["to ottla", "to kafka"])
def test_a_coordinator_and_a_leader_hand_a_transaction_over(
    cluster: MixedCluster, before: int, after: int
) -> None:
    topic, tx, group, moving = _new_transaction(cluster)
    for name, partition in moving:
        cluster.lead(before, name, partition)
    producer = Confluent(cluster.bootstrap, tx)
    for commit in (True, False):
        producer.begin()
        producer.send(topic, b"before")
        producer.send_offsets({(topic, 0): 5}, group)
        producer.flush()
        for name, partition in moving:
            cluster.lead(after, name, partition)
        producer.send(topic, b"after")
        if commit:
            producer.send_offsets({(topic, 0): 7}, group)
            producer.commit()
        else:
            producer.flush()
            producer.abort()
        before, after = after, before
    wait_for(lambda: state(cluster, tx) == "CompleteAbort", "the markers")
    assert read_confluent(cluster.bootstrap, topic) == [b"before", b"after"]
    wait_for(lambda: committed_offset(cluster.bootstrap, group, topic) == 7, "the offset")
    producer.close()


def test_a_transaction_moves_to_replicas_of_the_other_kind(cluster: MixedCluster) -> None:
    """All that it has written is copied while it is open: records, its state, and a group's offsets."""
    topic, tx, group, moving = _new_transaction(cluster)
    for name, partition in moving:
        cluster.reassign(name, [KAFKA], partition)
    producer = Confluent(cluster.bootstrap, tx)
    expected = []
    for turn, (replica, commit) in enumerate([(OTTLA, True), (2, False), (OTTLA, False), (KAFKA, True)]):
        values = [b"%d-before" % turn, b"%d-after" % turn]
        producer.begin()
        producer.send(topic, values[0])
        producer.send_offsets({(topic, 0): 2 * turn}, group)
        producer.flush()
        for name, partition in moving:
            cluster.reassign(name, [replica], partition)
        producer.send(topic, values[1])
        producer.send_offsets({(topic, 0): 2 * turn + 1}, group)
        producer.flush()
        if commit:
            producer.commit()
            expected += values
        else:
            producer.abort()
    wait_for(lambda: state(cluster, tx) == "CompleteCommit", "the markers")
    assert read_confluent(cluster.bootstrap, topic) == expected
    wait_for(lambda: committed_offset(cluster.bootstrap, group, topic) == 7, "the offset")
    producer.close()
    for name, partition in moving:
        cluster.reassign(name, [KAFKA, 2, OTTLA], partition)


@pytest.mark.parametrize("after", [KAFKA, OTTLA], ids=["by kafka", "by ottla"])
def test_a_late_transaction_is_aborted_by_the_other(cluster: MixedCluster, after: int) -> None:
    number = next(_numbers)
    topic, tx = f"t-{number}", f"tx-{number}"
    create(cluster, topic, partitions=1)
    cluster.lead(KAFKA + OTTLA - after, STATE_TOPIC, partition_for(tx, PARTITIONS))
    dead = Confluent(cluster.bootstrap, tx, 10_000)
    dead.begin()
    dead.send(topic, b"lost")
    dead.flush()
    cluster.lead(after, STATE_TOPIC, partition_for(tx, PARTITIONS))
    wait_for(lambda: state(cluster, tx) == "CompleteAbort", "the abort")
    other = Confluent(cluster.bootstrap, f"other-{number}")
    other.begin()
    other.send(topic, b"kept")
    other.commit()
    wait_for(lambda: read_confluent(cluster.bootstrap, topic) == [b"kept"], "the records")
    dead.close()
    other.close()
