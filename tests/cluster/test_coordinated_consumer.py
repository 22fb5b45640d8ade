"""The coordinator of 2012 on a real ZooKeeper: its election, its fail-over, and what it writes there."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest
from harness.ports import free_port
from kazoo.client import KazooClient
from tests.support.cluster import Cluster
from tests.support.waiting import until

from ottla_client import Admin, CoordinatedConsumer, NewTopic, Producer, TopicPartition
from ottla_client.errors import GroupError


async def put(cluster: Cluster, *values: bytes) -> None:
    async with Producer(cluster.bootstrap) as producer:
        for value in values:
            await producer.send_and_wait("t", value, partition=0)


async def take(consumer: CoordinatedConsumer, count: int) -> list[bytes | None]:
    values: list[bytes | None] = []
    async with asyncio.timeout(120):
        while len(values) < count:
            values += [record.value for record in await consumer.poll(1000)]
    return values


async def test_another_broker_takes_over(new_cluster: Callable[..., Cluster]) -> None:
    ports: dict[int, int] = {}

    def listeners(port: int) -> dict[str, object]:
        ports[port] = free_port()
        return {"coordinator.listener": ports[port]}

    cluster = new_cluster(brokers=2, listeners=listeners)
    async with Admin(cluster.bootstrap) as admin:
        await admin.create_topics([NewTopic("t", 1, 2)])
    await put(cluster, b"a")
    coordinators = [f"127.0.0.1:{ports[broker.port]}" for broker in cluster.brokers.values()]
    zookeeper = KazooClient(cluster.connect)
    zookeeper.start()
    try:
        consumer = CoordinatedConsumer(
            "t",
            coordinator_servers=coordinators,
            group_id="g",
            consumer_id="me",
            auto_offset_reset="smallest",
            session_timeout_ms=20_000,
        )
        async with consumer:
            assert await take(consumer, 1) == [b"a"]
            await consumer.commit()
            assert zookeeper.get("/consumers/g/offsets/t/0")[0] == b"1"
            await until(lambda: zookeeper.exists("/consumers/g/owners/t/0"))
            assert zookeeper.get("/consumers/g/owners/t/0")[0] == b"g_me-0"
            first = int(zookeeper.get("/consumers/coordinator")[0])
            cluster.brokers[first].kill()
            await until(lambda: not consumer.assignment())
            await until(lambda: consumer.assignment() == {TopicPartition("t", 0)}, timeout=120)
            assert int(zookeeper.get("/consumers/coordinator")[0]) == 3 - first
            await put(cluster, b"b")
            assert await take(consumer, 1) == [b"b"]
        zookeeper.create("/consumers/old/ids/old_1", makepath=True)
        with pytest.raises(GroupError, match="1 consumers that coordinate in ZooKeeper"):
            await CoordinatedConsumer("t", coordinator_servers=coordinators, group_id="old").start()
    finally:
        zookeeper.stop()
        zookeeper.close()
