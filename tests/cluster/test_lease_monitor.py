"""ZooKeeper is silent for one broker, which must give up its partitions, or for all, which keep serving."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from tests.support.clock import FakeClock
from tests.support.cluster import Cluster
from tests.support.proxy import Proxy
from tests.support.traffic import Stream, check_all_there, create, produce
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker.cluster.lease_monitor import watch_lease
from ottla_broker.store.api import Lease
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from ottla_protocol.records.record import encode_batch

CUT = 1
"""The broker that reaches ZooKeeper through a proxy."""


@pytest.fixture
def proxy(zookeeper: ZooKeeperProcess) -> Iterator[Proxy]:
    with Proxy() as made:
        made.target = zookeeper.port
        yield made


@pytest.fixture
def cluster(tmp_path: Path, zookeeper: ZooKeeperProcess, proxy: Proxy) -> Iterator[Cluster]:
    made = Cluster(tmp_path, zookeeper)
    own = made.brokers[CUT].settings
    own["zookeeper.connect"] = made.connect.replace(zookeeper.address, proxy.address)
    yield made.start()
    made.kill()
    assert not made.complaints()


@contextmanager
def stream_of(cluster: Cluster, topic: str) -> Iterator[Stream]:
    """A stream that ends with the block."""
    stream = Stream(cluster, topic)
    try:
        yield stream
    finally:
        stream.give_up()


def written(cluster: Cluster, number: int, topic: str, acks: int) -> ErrorCode:
    """A broker's response to a record."""
    request = ProduceRequest(
        acks=acks,
        timeout_ms=5000,
        topic_data=[
            TopicProduceData(
                name=topic,
                partition_data=[
                    PartitionProduceData(index=0, records=bytes(encode_batch([(0, None, b"x", ())])))
                ],
            )
        ],
    )
    with Wire(cluster.brokers[number].port) as connection:
        return ErrorCode(connection.call(request, 9).responses[0].partition_responses[0].error_code)


def asked(cluster: Cluster, number: int, topic: str) -> ErrorCode:
    """A broker's response to a consumer that asks for the end."""
    request = ListOffsetsRequest(
        replica_id=-1,
        topics=[
            ListOffsetsTopic(name=topic, partitions=[ListOffsetsPartition(partition_index=0, timestamp=-1)])
        ],
    )
    with Wire(cluster.brokers[number].port) as connection:
        return ErrorCode(connection.call(request, 7).topics[0].partitions[0].error_code)


def led_by(cluster: Cluster, number: int, prefix: str, replicas: int = 3) -> str:
    """A topic of one partition that a broker leads."""
    for index in range(20):
        name = f"{prefix}{index}"
        create(cluster, name, replicas=replicas)
        if cluster.leader(name) == number:
            cluster.wait_in_sync(name, replicas)
            return name
    raise AssertionError(f"broker {number} leads nothing")


def test_a_broker_cut_off_from_zookeeper_gives_up_its_partitions(cluster: Cluster, proxy: Proxy) -> None:
    topic = led_by(cluster, CUT, "t")
    alone = led_by(cluster, CUT, "alone", replicas=1)
    with stream_of(cluster, topic) as stream:
        leave_to_others(cluster, proxy, topic, alone, stream)
        acked = stream.stop()
    check_all_there(cluster, topic, acked)


def leave_to_others(cluster: Cluster, proxy: Proxy, topic: str, alone: str, stream: Stream) -> None:
    stream.wait_for_more()
    proxy.hold()
    wait_for(
        lambda: cluster.metadata(2, [topic]).topics[0].partitions[0].leader_id not in (CUT, -1),
        "another leader",
    )
    # The old leader redirects clients, although the controller can't inform it.
    wait_for(lambda: written(cluster, CUT, topic, 1) is ErrorCode.NOT_LEADER_OR_FOLLOWER, "a refusal")
    assert asked(cluster, CUT, topic) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert written(cluster, CUT, topic, -1) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    # No other broker can lead a partition that only this one has.
    assert written(cluster, CUT, alone, -1) is ErrorCode.NONE
    stream.wait_for_more()
    proxy.release()
    cluster.wait_complete()
    cluster.wait_in_sync(topic, 3)
    stream.wait_for_more()


def test_a_controller_cut_off_from_zookeeper_resigns(cluster: Cluster, proxy: Proxy) -> None:
    while cluster.controller() != CUT:
        controller = cluster.controller()
        cluster.brokers[controller].stop(30)
        cluster.brokers[controller].start()
        cluster.wait_complete()
    proxy.hold()
    wait_for(lambda: cluster.metadata(2).controller_id not in (CUT, -1), "another controller")
    assert "ZooKeeper doesn't answer" in cluster.brokers[CUT].log()
    proxy.release()
    cluster.wait_complete()
    # Every broker must name the same controller: a client asks any of them.
    wait_for(
        lambda: len({cluster.metadata(number).controller_id for number in cluster.brokers}) == 1,
        "one controller",
    )
    create(cluster, "t")
    produce(cluster, "t", ["a"])


def test_a_coordinator_cut_off_from_zookeeper_sends_its_groups_away(cluster: Cluster, proxy: Proxy) -> None:
    def coordinator(group: str) -> int:
        with Wire(cluster.brokers[2].port) as connection:
            answer = connection.call(FindCoordinatorRequest(key=group, key_type=0), 3)
            return int(answer.node_id)

    wait_for(lambda: coordinator("g0") > 0, "a coordinator")
    cluster.wait_in_sync("__consumer_offsets", 3)
    group = next(f"g{index}" for index in range(50) if coordinator(f"g{index}") == CUT)

    def beaten() -> ErrorCode:
        with Wire(cluster.brokers[CUT].port) as connection:
            request = HeartbeatRequest(group_id=group, generation_id=1, member_id="m")
            return ErrorCode(connection.call(request, 4).error_code)

    wait_for(lambda: beaten() is ErrorCode.UNKNOWN_MEMBER_ID, "the coordinator to have loaded")
    proxy.hold()
    wait_for(lambda: beaten() is ErrorCode.NOT_COORDINATOR, "the coordinator to give up")
    proxy.release()


def test_brokers_keep_serving_while_zookeeper_is_down(tmp_path: Path) -> None:
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper").start()
    cluster = Cluster(tmp_path, zookeeper)
    try:
        cluster.start()
        for topic in ("t", "u"):
            create(cluster, topic, configs={"min.insync.replicas": "2"})
            cluster.wait_in_sync(topic, 3)
        with stream_of(cluster, "t") as stream:
            go_on(cluster, zookeeper, stream)
            acked = stream.stop()
        check_all_there(cluster, "t", acked)
    finally:
        cluster.kill()
        zookeeper.kill()
    assert not cluster.complaints()


def go_on(cluster: Cluster, zookeeper: ZooKeeperProcess, stream: Stream) -> None:
    stream.wait_for_more()
    zookeeper.kill()
    for broker in cluster.brokers.values():
        wait_for(lambda: "ZooKeeper doesn't answer" in broker.log(), "silence")  # noqa: B023
    leader = cluster.leader("u")
    stream.wait_for_more(50)
    assert written(cluster, leader, "u", 1) is ErrorCode.NONE
    # A follower whose process has ended can't lead either, so its partitions are still served.
    other = next(number for number in cluster.brokers if number != leader)
    cluster.brokers[other].kill()
    wait_for(lambda: written(cluster, leader, "u", 1) is ErrorCode.NONE, "the leader to go on")
    assert asked(cluster, leader, "u") is ErrorCode.NONE
    zookeeper.start()
    cluster.brokers[other].start()
    cluster.wait_complete()
    cluster.wait_in_sync("t", 3)
    stream.wait_for_more()
    assert cluster.controller()


async def test_an_expired_and_a_renewed_lease_are_noticed() -> None:
    clock = FakeClock()
    lease = Lease(clock.time + 5)
    calls, heard = 0, asyncio.Event()

    async def on_silent() -> None:
        nonlocal calls
        calls += 1

    task = asyncio.ensure_future(watch_lease(lambda: lease, clock, on_silent, heard.set))
    await clock.elapse(4.9)
    assert calls == 0
    await clock.elapse(1.1)
    assert calls > 1
    assert not heard.is_set()
    lease.until = clock.time + 60
    await clock.elapse(1)
    assert heard.is_set()
    task.cancel()
    await asyncio.wait([task])
