"""Transaction version 2 in a cluster: it is finalized for all brokers, and coordinators and leaders die meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.ottla_command import Ottla
from tests.clients.transactional import committed_offset, read_confluent
from tests.support.cluster import Cluster
from tests.support.traffic import create
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client import OffsetAndMetadata, TopicPartition
from ottla_client.sync import Admin, Producer
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from ottla_protocol.partitioning import partition_for

NAME = "transaction.version"
STATE_TOPIC = "__transaction_state"
TX = "tx"


def levels(ottla: Ottla) -> list[tuple[int, list[int]]]:
    """The finalized level, and the brokers that support it."""
    return [(row["finalized"], row["brokers"]) for row in ottla.json("features", "describe")]


def finalize(cluster: Cluster, change: str, level: int) -> None:
    """By the command line; the brokers that aren't the controller refuse it."""
    update = FeatureUpdateKey(feature=NAME, max_version_level=level)
    for number, broker in cluster.brokers.items():
        if number != cluster.controller():
            with Wire(broker.port) as wire:
                answer = wire.call(UpdateFeaturesRequest(feature_updates=[update]), 1)
            assert answer.error_code == ErrorCode.NOT_CONTROLLER
    ottla = Ottla(cluster.bootstrap)
    assert ottla("features", change, "--feature", f"{NAME}={level}") == f"finalized {NAME} at {level}\n"

    def followed() -> bool:
        with Admin(cluster.bootstrap) as admin:
            found = admin.describe_features().values()
        return [each.finalized.get(NAME, 0) for each in found] == [level] * 3

    wait_for(followed, "all brokers to follow")
    assert levels(ottla) == [(level, [1, 2, 3])]


def coordinator(cluster: Cluster) -> int:
    return cluster.leader(STATE_TOPIC, partition_for(TX, 1))


def epoch(producer: Producer) -> int:
    """The epoch of the producer's next transaction."""
    manager = producer._transactions
    assert manager is not None
    assert manager.identity is not None
    return manager.identity.epoch


def test_transactions_while_brokers_die(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(brokers=3, settings={"transaction.state.log.num.partitions": 1})
    assert levels(Ottla(cluster.bootstrap)) == [(0, [1, 2, 3])]
    create(cluster, "source")
    create(cluster, "t", partitions=3)
    cluster.wait_in_sync("t", 3)
    expected: list[bytes] = []
    with Producer(cluster.bootstrap, transactional_id=TX) as producer:

        def transact(name: bytes, commit: bool = True, between: Callable[[], None] = lambda: None) -> None:
            producer.begin_transaction()
            for part in (b"1", b"2"):
                values = [b"%s-%s-%d" % (name, part, index) for index in range(3)]
                for index, value in enumerate(values):
                    producer.send("t", value, partition=index)
                producer.flush()
                producer.send_offsets_to_transaction(
                    {TopicPartition("source", 0): OffsetAndMetadata(int(part))}, "group"
                )
                if commit:
                    expected.extend(values)
                if part == b"1":
                    between()
            producer.commit_transaction() if commit else producer.abort_transaction()

        transact(b"older")
        assert epoch(producer) == 0
        finalize(cluster, "upgrade", 2)
    with Producer(cluster.bootstrap, transactional_id=TX) as producer:
        first = epoch(producer)
        transact(b"plain")
        transact(b"aborted", commit=False)
        victims: list[int] = []

        def kill(number: int) -> None:
            victims.append(number)
            cluster.brokers[number].kill()

        transact(b"coordinator", between=lambda: kill(coordinator(cluster)))
        cluster.brokers[victims[-1]].start()
        cluster.wait_in_sync("t", 3)
        cluster.wait_in_sync(STATE_TOPIC, 3)
        transact(b"leader", between=lambda: kill(cluster.leader("t", 0)))
        assert epoch(producer) == first + 4
        cluster.brokers[victims[-1]].start()
        cluster.wait_complete()
    finalize(cluster, "downgrade", 0)
    with Producer(cluster.bootstrap, transactional_id=TX) as producer:
        first = epoch(producer)
        transact(b"downgraded")
        assert epoch(producer) == first

    def read() -> list[bytes]:
        return sorted(read_confluent(cluster.bootstrap, "t", 3))

    wait_for(lambda: len(read()) >= len(expected), "the records")
    assert read() == sorted(expected)
    wait_for(lambda: committed_offset(cluster.bootstrap, "group", "source") == 2, "the offset")
