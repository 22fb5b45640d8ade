"""Three brokers and a ZooKeeper: what clients see while brokers die, stop and come back."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient, NewPartitions
from tests.support.cluster import Cluster
from tests.support.traffic import Stream, check_all_there, consume, create, produce
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

NewCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster()


@pytest.fixture(scope="module")
def unharmed(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A cluster for the tests that stop no broker, each with topics of its own."""
    cluster = Cluster(tmp_path_factory.mktemp("unharmed"), zookeeper)
    try:
        yield cluster.start()
    finally:
        cluster.kill()
    assert not cluster.complaints()


def test_brokers_find_each_other_and_elect_a_controller(unharmed: Cluster) -> None:
    metadata = [unharmed.metadata(number) for number in unharmed.brokers]
    assert len({each.cluster_id for each in metadata}) == 1
    assert len(metadata[0].cluster_id or "") == 22
    assert len({each.controller_id for each in metadata}) == 1
    assert metadata[0].controller_id in unharmed.brokers


def test_a_topic_is_replicated_and_read_back(unharmed: Cluster) -> None:
    create(unharmed, "read-back", partitions=6)
    unharmed.wait_in_sync("read-back", 3)
    values = [f"value-{i}" for i in range(500)]
    produce(unharmed, "read-back", values)
    assert sorted(consume(unharmed, "read-back", 500)) == sorted(values)
    leaders = {unharmed.leader("read-back", partition) for partition in range(6)}
    assert leaders == {1, 2, 3}


def test_a_leader_that_stops_is_replaced_without_losing_records(cluster: Cluster) -> None:
    create(cluster, "t", configs={"min.insync.replicas": "2"})
    cluster.wait_in_sync("t", 3)
    stream = Stream(cluster, "t")
    stream.wait_for_more()
    leader = cluster.leader("t")
    cluster.brokers[leader].stop(30)
    stream.wait_for_more(200)
    assert cluster.leader("t") != leader
    cluster.brokers[leader].start()
    cluster.wait_in_sync("t", 3)
    stream.wait_for_more()
    check_all_there(cluster, "t", stream.stop())


def test_every_broker_killed_in_turn(cluster: Cluster) -> None:
    create(cluster, "t", configs={"min.insync.replicas": "2"})
    cluster.wait_in_sync("t", 3)
    stream = Stream(cluster, "t")
    killed_leaders = 0
    for number in cluster.brokers:
        stream.wait_for_more()
        killed_leaders += cluster.leader("t") == number
        cluster.brokers[number].kill()
        stream.wait_for_more(200)
        assert cluster.leader("t") != number
        cluster.brokers[number].start()
        cluster.wait_in_sync("t", 3)
    assert killed_leaders
    check_all_there(cluster, "t", stream.stop())


def test_the_controller_killed_is_replaced(cluster: Cluster) -> None:
    controller = cluster.controller()
    cluster.brokers[controller].kill()
    wait_for(lambda: cluster.controller() not in (0, controller), "another controller")
    create(cluster, "t", replicas=2)
    produce(cluster, "t", ["a", "b"])
    cluster.brokers[controller].start()
    cluster.wait_complete()
    assert consume(cluster, "t", 2) == ["a", "b"]


def test_a_group_keeps_its_offsets_when_its_coordinator_dies(cluster: Cluster) -> None:
    create(cluster, "t")
    produce(cluster, "t", ["a", "b"])
    assert consume(cluster, "t", 2) == ["a", "b"]
    cluster.wait_in_sync("__consumer_offsets", 3)
    from ottla_protocol.partitioning import partition_for

    coordinator = cluster.leader("__consumer_offsets", partition_for("readers", 5))
    cluster.brokers[coordinator].kill()
    produce(cluster, "t", ["c"])
    assert consume(cluster, "t", 1) == ["c"]


def test_topics_are_created_extended_configured_and_deleted_through_any_broker(unharmed: Cluster) -> None:
    create(unharmed, "changed", partitions=2)
    for number, broker in unharmed.brokers.items():
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_partitions([NewPartitions("changed", 2 + number)])["changed"].result(60)
    wait_for(
        lambda: all(
            len(unharmed.metadata(n, ["changed"]).topics[0].partitions) == 5 for n in unharmed.brokers
        ),
        "five partitions",
    )
    produce(unharmed, "changed", [f"v{i}" for i in range(100)])
    admin = AdminClient({"bootstrap.servers": unharmed.bootstrap})
    admin.delete_topics(["changed"], operation_timeout=60)["changed"].result(60)
    wait_for(
        lambda: all(unharmed.metadata(n, ["changed"]).topics[0].error_code == 3 for n in unharmed.brokers),
        "the topic to be unknown",
    )
    create(unharmed, "changed", partitions=1)
    produce(unharmed, "changed", ["new"])
    assert consume(unharmed, "changed", 1) == ["new"]


def test_too_few_in_sync_refuses_acks_all(cluster: Cluster) -> None:
    create(cluster, "t", configs={"min.insync.replicas": "3"})
    cluster.wait_in_sync("t", 3)
    other = next(number for number in cluster.brokers if number != cluster.leader("t"))
    cluster.brokers[other].kill()
    wait_for(lambda: len(cluster.isr("t")) == 2, "two in sync")
    errors: list[KafkaException] = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap, "acks": "all", "delivery.timeout.ms": 2000, "retries": 0}
    )
    producer.produce("t", "x", on_delivery=lambda error, _: errors.append(error))
    producer.flush(60)
    assert errors[0] is not None
    cluster.brokers[other].start()
    cluster.wait_in_sync("t", 3)
    produce(cluster, "t", ["y"])


def test_a_number_in_use_is_refused(unharmed: Cluster, tmp_path) -> None:  # type: ignore[no-untyped-def]
    from tests.support.processes import BrokerProcess

    settings = {**unharmed.brokers[1].settings}
    intruder = BrokerProcess(tmp_path / "intruder", settings)
    with pytest.raises(RuntimeError, match=r"broker.id=1 is in use by a broker at PLAINTEXT://127.0.0.1"):
        intruder.start()


def test_the_last_broker_to_stop_does_not_wait(new_cluster: NewCluster) -> None:
    """As long as others stay, the controller is asked again; once all stop, none waits for another."""
    cluster = new_cluster(settings={"controlled.shutdown.retry.backoff.ms": 600_000})
    create(cluster, "t", partitions=6)
    cluster.wait_in_sync("t", 3)
    for broker in cluster.brokers.values():
        broker.send_signal(signal.SIGTERM)
    for broker in cluster.brokers.values():
        assert broker.wait() == 0
    events = [event["event"] for broker in cluster.brokers.values() for event in broker.events()]
    assert "all brokers stop, so none takes over leadership" in events
