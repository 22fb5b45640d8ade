"""Consumers find brokers that have moved, and brokers that came after the consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from harness.ports import free_port
from tests.support.cluster import Cluster
from tests.support.topics import create_topic

from ottla_client import Admin, Consumer, CoordinatedConsumer, NewTopic, Producer, ZookeeperConsumer


def consumer_of(kind: str, cluster: Cluster, port: int) -> ZookeeperConsumer | CoordinatedConsumer:
    options: dict[str, Any] = {"group_id": f"g-{kind}", "auto_offset_reset": "smallest"}
    if kind == "zookeeper":
        return ZookeeperConsumer(
            "t", zookeeper_connect=cluster.connect, zookeeper_session_timeout_ms=20_000, **options
        )
    servers = f"127.0.0.1:{port}"
    return CoordinatedConsumer("t", coordinator_servers=servers, session_timeout_ms=20_000, **options)


async def put(cluster: Cluster, number: int, value: bytes) -> None:
    async with Producer(cluster.brokers[number].bootstrap) as producer:
        await producer.send_and_wait("t", value, partition=0)


async def test_a_broker_with_the_same_id_on_another_port(new_cluster: Callable[..., Cluster]) -> None:
    """ "The purpose of the logical broker id is to allow a broker to be moved … without affecting consumers." """
    port = free_port()
    cluster = new_cluster(brokers=1, listeners=lambda _: {"coordinator.listener": port})
    broker = cluster.brokers[1]
    create_topic(broker, "t", 1)
    await put(cluster, 1, b"before")
    async with (
        consumer_of("zookeeper", cluster, port) as one,
        consumer_of("coordinated", cluster, port) as two,
        asyncio.timeout(120),
    ):
        for consumer in (one, two):
            assert (await consumer.getone()).value == b"before"
            await consumer.commit()
        await asyncio.to_thread(broker.stop)
        broker.port = free_port()
        await asyncio.to_thread(broker.start)
        await put(cluster, 1, b"after")
        for consumer in (one, two):
            assert (await consumer.getone()).value == b"after"


@pytest.mark.parametrize("kind", ["zookeeper", "group"])
async def test_the_only_broker_at_the_start_dies(new_cluster: Callable[..., Cluster], kind: str) -> None:
    cluster = new_cluster(brokers=2)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 2)])
    cluster.wait_in_sync("t", 2)
    await put(cluster, 1, b"before")
    await asyncio.to_thread(cluster.brokers[2].stop)
    async with asyncio.timeout(180):
        consumer: Any = (
            consumer_of(kind, cluster, 0)
            if kind == "zookeeper"
            else Consumer("t", bootstrap_servers=cluster.brokers[1].bootstrap, auto_offset_reset="earliest")
        )
        async with consumer:
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
