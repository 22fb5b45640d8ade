"""Fixtures of the consumer's tests: consumers with quick waits, and records written without a producer."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Iterable, Sequence
from time import time
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.base.conftest import client_tasks
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client import Consumer, TopicPartition
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.records.record import encode_batch

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

QUICK: dict[str, Any] = {
    "auto_offset_reset": "earliest",
    "fetch_max_wait_ms": 100,
    "retry_backoff_ms": 10,
    "retry_backoff_max_ms": 50,
    "reconnect_backoff_ms": 10,
    "reconnect_backoff_max_ms": 100,
}


def put_batch(broker: BrokerProcess, topic: str, partition: int, batch: bytes | bytearray) -> int:
    """Write a batch as it is; returns its first offset. A broker that has just started may not lead yet."""
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=[
            TopicProduceData(
                name=topic, partition_data=[PartitionProduceData(index=partition, records=batch)]
            )
        ],
    )
    with Wire(broker.port) as wire:

        def sent() -> Any:
            answer = wire.call(request, 8).responses[0].partition_responses[0]
            return None if answer.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER else answer

        answer = wait_for(sent, f"a leader of {topic}-{partition}")
    assert answer.error_code == 0, answer
    offset: int = answer.base_offset
    return offset


def put(
    broker: BrokerProcess,
    topic: str,
    values: Iterable[bytes | None],
    partition: int = 0,
    *,
    key: bytes | None = None,
    timestamp: int | None = None,
    batch: int = 100,
    **options: Any,
) -> None:
    """Write records, ``batch`` of them in one batch, one millisecond apart, from ``timestamp`` (now) on."""
    every = list(values)
    start = int(time() * 1000) if timestamp is None else timestamp
    for first in range(0, len(every), batch):
        rows = [
            (start + first + place, key, value, ())
            for place, value in enumerate(every[first : first + batch])
        ]
        put_batch(broker, topic, partition, encode_batch(rows, **options))


def delete_topic(broker: BrokerProcess, name: str) -> None:
    """Delete a topic, and wait until the broker doesn't know it: Kafka's learn of it a moment later."""
    with Wire(broker.port) as wire:
        answer = wire.call(DeleteTopicsRequest(topic_names=[name], timeout_ms=10_000), 3)
        assert answer.responses[0].error_code == 0
        asked = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=False)
        wait_for(lambda: wire.call(asked, 4).topics[0].error_code, f"{name} to be gone")


def numbered(count: int, first: int = 0) -> list[bytes]:
    """Values that number the records."""
    return [b"%d" % number for number in range(first, first + count)]


async def take(consumer: Consumer, count: int, timeout: float = 60.0) -> list[Any]:
    """Exactly ``count`` records by ``poll``."""
    records: list[Any] = []
    async with asyncio.timeout(timeout):
        while len(records) < count:
            records += await consumer.poll(200, count - len(records))
    return records


async def assigned(consumers: Sequence[Consumer], count: int, timeout: float = 60.0) -> None:
    """Poll consumers side by side until they have ``count`` partitions in all, and each has some."""
    async with asyncio.timeout(timeout):
        while True:
            await asyncio.gather(*(each.poll(20, 1) for each in consumers))
            shares = [each.assignment() for each in consumers]
            if all(shares) and sum(map(len, shares)) == count:
                return


def offsets(records: Iterable[Any]) -> list[int]:
    return [record.offset for record in records]


def tp(topic: str, partition: int = 0) -> TopicPartition:
    return TopicPartition(topic, partition)


@pytest.fixture
async def new_consumer(broker: BrokerProcess) -> AsyncIterator[Callable[..., Any]]:
    """Makes and starts consumers; all are closed at the end, and no task may be left then."""
    made: list[Consumer] = []

    async def make(*topics: str, **options: Any) -> Consumer:
        consumer = Consumer(*topics, **{"bootstrap_servers": broker.bootstrap, **QUICK, **options})
        made.append(consumer)
        await consumer.start()
        return consumer

    yield make
    for consumer in made:
        await consumer.close()
    assert not client_tasks()
