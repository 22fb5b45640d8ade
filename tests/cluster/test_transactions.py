"""Transactions in a cluster of three: coordinators and leaders die and freeze while transactions are open or ending."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.transactional import Confluent, Fenced, committed_offset, read_confluent
from tests.support.cluster import Cluster
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import TopicPartition
from ottla_client.sync import Admin
from ottla_protocol.messages.describe_transactions import DescribeTransactionsRequest
from ottla_protocol.partitioning import partition_for

NewName = Callable[..., str]
STATE_TOPIC = "__transaction_state"
PARTITIONS = 3


@pytest.fixture(scope="module")
def shared(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One cluster for all tests here: each leaves it complete."""
    made = Cluster(
        tmp_path_factory.mktemp("cluster"),
        zookeeper,
        settings={
            "transaction.state.log.num.partitions": PARTITIONS,
            "transaction.abort.timed.out.transaction.cleanup.interval.ms": 500,
            # A coordinator moves where a test moves it: one that goes back to the preferred leader while a decision
            # is written answers NOT_COORDINATOR, and the next one CONCURRENT_TRANSACTIONS, as Kafka's, until all
            # markers are written, for which a frozen leader is waited for.
            "auto.leader.rebalance.enable": "false",
        },
    )
    made.start()
    yield made
    made.kill()
    assert not made.complaints()


@pytest.fixture
def cluster(shared: Cluster) -> Iterator[Cluster]:
    yield shared
    shared.thaw_all()
    for broker in shared.brokers.values():
        if not broker.running:
            broker.start()
    shared.wait_complete()


@pytest.fixture
def start(cluster: Cluster) -> Iterator[Callable[..., Confluent]]:
    made: list[Confluent] = []

    def make(transactional_id: str, **options: Any) -> Confluent:
        made.append(Confluent(cluster.bootstrap, transactional_id, **options))
        return made[-1]

    yield make
    for producer in made:
        producer.close()


def coordinator(cluster: Cluster, transactional_id: str) -> int:
    cluster.wait_in_sync(STATE_TOPIC, 3)
    return cluster.leader(STATE_TOPIC, partition_for(transactional_id, PARTITIONS))


def state(cluster: Cluster, transactional_id: str, number: int = 0) -> str:
    """The state, from the coordinator of the moment unless a broker is named."""
    number = number or cluster.leader(STATE_TOPIC, partition_for(transactional_id, PARTITIONS))
    with Wire(cluster.brokers[number].port) as wire:
        request = DescribeTransactionsRequest(transactional_ids=[transactional_id])
        [found] = wire.call(request, 0).transaction_states
        return str(found.transaction_state)


def settled(cluster: Cluster, topic: str, partitions: int, expected: list[bytes]) -> None:
    """Wait until readers of committed records see exactly these."""

    def read() -> list[bytes]:
        return sorted(read_confluent(cluster.bootstrap, topic, partitions))

    wait_for(lambda: len(read()) >= len(expected), f"{len(expected)} records of {topic}")
    assert read() == sorted(expected)


def test_coordinators_and_leaders_die_in_mid_transaction(
    cluster: Cluster, start: Callable[..., Confluent], new_name: NewName
) -> None:
    topic, tx = new_name("t"), new_name("tx")
    source, group = new_name("source"), new_name("group")
    create(cluster, source)
    create(cluster, topic, partitions=3, configs={"min.insync.replicas": "2"})
    cluster.wait_in_sync(topic, 3)
    producer = start(tx)
    expected: list[bytes] = []

    def write(name: str) -> list[bytes]:
        values = [b"%s-%d" % (name.encode(), number) for number in range(3)]
        for partition, value in enumerate(values):
            producer.send(topic, value, partition)
        return values

    for number in range(3):
        victim = coordinator(cluster, tx) if number != 1 else cluster.leader(topic, 0)
        producer.begin()
        values = write(f"before-{number}")
        producer.send_offsets({(source, 0): number}, group)
        producer.flush()
        cluster.brokers[victim].kill()
        values += write(f"after-{number}")
        producer.send_offsets({(source, 0): number + 100}, group)
        producer.commit()
        expected += values
        producer.begin()
        write("aborted")
        producer.abort()
        cluster.brokers[victim].start()
        cluster.wait_in_sync(topic, 3)
    settled(cluster, topic, 3, expected)
    wait_for(lambda: committed_offset(cluster.bootstrap, group, source) == 102, "the offset")


@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_decision_is_carried_out_by_the_next_coordinator(
    cluster: Cluster, start: Callable[..., Confluent], new_name: NewName, commit: bool
) -> None:
    """The leader of a partition is frozen, so its marker can't be written before the coordinator dies."""
    topic, tx = new_name("t"), new_name("tx")
    # Longer than the cluster needs without the frozen broker, which the client may have asked something.
    producer = start(tx, socket_timeout_ms=15_000)
    here = coordinator(cluster, tx)
    # Without the controller it takes longer until the frozen broker isn't waited for.
    there = next(number for number in cluster.brokers if number not in (here, cluster.controller()))
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[there]])])[topic].result(60)
    wait_for(lambda: cluster.leader(topic) == there, "the leader")
    producer.begin()
    producer.send(topic, b"v")
    producer.flush()
    cluster.freeze(there)
    if commit:
        producer.commit()
    else:
        producer.abort()
    assert state(cluster, tx, here).startswith("Prepare")
    cluster.brokers[here].kill()
    cluster.thaw(there)
    wait_for(lambda: state(cluster, tx) == ("CompleteCommit" if commit else "CompleteAbort"), "completion")
    assert read_confluent(cluster.bootstrap, topic) == ([b"v"] if commit else [])
    cluster.brokers[here].start()


def test_a_frozen_coordinator_finds_itself_replaced(
    cluster: Cluster, start: Callable[..., Confluent], new_name: NewName
) -> None:
    topic, tx = new_name("t"), new_name("tx")
    create(cluster, topic)
    cluster.wait_in_sync(topic, 3)
    producer = start(tx, socket_timeout_ms=3000)
    here = coordinator(cluster, tx)
    producer.begin()
    producer.send(topic, b"1")
    producer.flush()
    cluster.freeze(here)
    producer.commit()
    producer.begin()
    producer.send(topic, b"2")
    cluster.thaw(here)
    producer.commit()
    settled(cluster, topic, 1, [b"1", b"2"])
    other = start(tx)
    other.begin()
    other.send(topic, b"3")
    other.commit()
    producer.begin()
    producer.send(topic, b"lost")
    with pytest.raises(Fenced):
        producer.commit()
    settled(cluster, topic, 1, [b"1", b"2", b"3"])


def reassign(cluster: Cluster, replicas: Mapping[TopicPartition, Sequence[int]]) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.alter_partition_reassignments(replicas)
        wait_for(lambda: not admin.list_partition_reassignments(), "the partitions to move")


def test_everything_is_reassigned_in_mid_transaction(
    cluster: Cluster, start: Callable[..., Confluent], new_name: NewName
) -> None:
    """The records', the offsets' and the coordinator's partition leave the broker that leads them."""
    topic, tx, group = new_name("t"), new_name("tx"), new_name("group")
    producer = start(tx)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    admin.create_topics([NewTopic(topic, num_partitions=1, replica_assignment=[[1]])])[topic].result(60)
    internal = [
        TopicPartition(STATE_TOPIC, partition_for(tx, PARTITIONS)),
        TopicPartition("__consumer_offsets", partition_for(group, 5)),
    ]

    def move() -> None:
        before = {each: cluster.leader(*each) for each in (TopicPartition(topic, 0), *internal)}
        reassign(cluster, {each: [n for n in cluster.brokers if n != led] for each, led in before.items()})
        wait_for(lambda: all(cluster.leader(*each) != led for each, led in before.items()), "other leaders")

    for commit in (True, False):
        producer.begin()
        producer.send(topic, b"before")
        producer.send_offsets({(topic, 0): 5}, group)
        producer.flush()
        move()
        producer.send(topic, b"after")
        producer.send_offsets({(topic, 0): 7 if commit else 9}, group)
        if commit:
            producer.commit()
        else:
            producer.flush()
            producer.abort()
        move()
    wait_for(lambda: state(cluster, tx) == "CompleteAbort", "the markers")
    settled(cluster, topic, 1, [b"before", b"after"])
    wait_for(lambda: committed_offset(cluster.bootstrap, group, topic) == 7, "the offset")
    # As the other tests expect them.
    reassign(cluster, {each: [1, 2, 3] for each in internal})


def test_a_producer_that_dies_is_aborted_by_the_next_coordinator(
    cluster: Cluster, start: Callable[..., Confluent], new_name: NewName
) -> None:
    topic, tx = new_name("t"), new_name("tx")
    create(cluster, topic)
    cluster.wait_in_sync(topic, 3)
    dead = start(tx, timeout_ms=3000, socket_timeout_ms=3000)
    here = coordinator(cluster, tx)
    dead.begin()
    dead.send(topic, b"lost")
    dead.flush()
    cluster.brokers[here].kill()
    wait_for(lambda: state(cluster, tx) == "CompleteAbort", "the abort")
    cluster.brokers[here].start()
    other = start(new_name("other"))
    other.begin()
    other.send(topic, b"kept")
    other.commit()
    settled(cluster, topic, 1, [b"kept"])
