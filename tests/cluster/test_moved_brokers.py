"""Consumers find brokers that have moved, and brokers that came after the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from contextlib import AsyncExitStack
from typing import Any

import pytest
from harness.ports import free_port
from tests.support.cluster import Cluster

from ottla_client import (
    Admin,
    Consumer,
    CoordinatedConsumer,
    NewTopic,
    OffsetSpec,
    Producer,
    TopicPartition,
    ZookeeperConsumer,
)

KINDS = ("zookeeper", "coordinated", "group", "alone")


def consumer_of(kind: str, cluster: Cluster, servers: str) -> Any:
    if kind == "alone":
        return Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest")
    options: dict[str, Any] = {"group_id": f"g-{kind}", "auto_offset_reset": "smallest"}
    if kind == "zookeeper":
        return ZookeeperConsumer(
            "t", zookeeper_connect=cluster.connect, zookeeper_session_timeout_ms=20_000, **options
        )
    if kind == "coordinated":
        ports = [broker.settings["coordinator.listener"] for broker in cluster.brokers.values()]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        return CoordinatedConsumer("t", coordinator_servers=servers, session_timeout_ms=20_000, **options)
    return Consumer("t", bootstrap_servers=servers, auto_offset_reset="earliest", group_id="g")


async def put(cluster: Cluster, number: int, value: bytes) -> None:
    async with Producer(cluster.brokers[number].bootstrap) as producer:
        await producer.send_and_wait("t", value, partition=0)


async def test_brokers_with_the_same_ids_on_other_ports(new_cluster: Callable[..., Cluster]) -> None:
    """ "The purpose of the logical broker id is to allow a broker to be moved … without affecting consumers."

    One moves to a new port, and another to where the first was.
    """
    cluster = new_cluster(
        brokers=2,
        settings={"offsets.topic.replication.factor": 1},
        listeners=lambda _: {"coordinator.listener": free_port()},
    )
    one, two = cluster.brokers.values()
    servers = cluster.bootstrap
    async with Producer(servers) as producer, Admin(servers) as admin, AsyncExitStack() as stack:

        async def send(value: bytes) -> None:
            for partition in (0, 1):
                await producer.send_and_wait("t", value, partition=partition)

        await stack.enter_async_context(asyncio.timeout(120))
        await admin.create_topics([NewTopic("t", 2)])
        await send(b"before")
        leaders = {each.leader for each in (await admin.describe_topics(["t"]))["t"].partitions.values()}
        assert leaders == {1, 2}
        consumers = [await stack.enter_async_context(consumer_of(kind, cluster, servers)) for kind in KINDS]
        for consumer in consumers:
            assert [(await consumer.getone()).value for _ in range(2)] == [b"before"] * 2
        for consumer in consumers[:3]:
            await consumer.commit()
        for broker in (one, two):
            await asyncio.to_thread(broker.stop)
        one.port, two.port = free_port(), one.port
        # The second one first: clients find it where they look for the first.
        await asyncio.to_thread(two.start)
        await asyncio.to_thread(one.start)
        await send(b"after")
        for consumer in consumers:
            assert [(await consumer.getone()).value for _ in range(2)] == [b"after"] * 2
        ends = await admin.list_offsets({TopicPartition("t", each): OffsetSpec.LATEST for each in (0, 1)})
        assert [each.offset for each in ends.values()] == [2, 2]


@pytest.mark.parametrize("kind", ["zookeeper", "alone"])
async def test_the_only_broker_at_the_start_dies(new_cluster: Callable[..., Cluster], kind: str) -> None:
    cluster = new_cluster(brokers=2)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 2)])
    cluster.wait_in_sync("t", 2)
    await put(cluster, 1, b"before")
    await asyncio.to_thread(cluster.brokers[2].stop)
    async with asyncio.timeout(180):
        async with consumer_of(kind, cluster, cluster.brokers[1].bootstrap) as consumer:
            assert (await consumer.getone()).value == b"before"
            await asyncio.to_thread(cluster.brokers[2].start)
            await asyncio.to_thread(cluster.wait_in_sync, "t", 2)
            clusters = (
                [stream._consumer._engine.cluster for stream in consumer._streams]
                if kind == "zookeeper"
                else [consumer._engine.cluster]
            )
            while not all(2 in each.nodes for each in clusters):
                await asyncio.sleep(0.05)
            cluster.brokers[1].kill()
            await asyncio.to_thread(cluster.leader, "t")
            await put(cluster, 2, b"after")
            assert (await consumer.getone()).value == b"after"
