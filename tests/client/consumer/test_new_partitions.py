"""Partitions and topics that appear while a consumer reads from "latest" are read from their start (KIP-1327)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.consumer.conftest import numbered, put
from tests.support.topics import create_topic
from tests.support.waiting import until

from ottla_client import Admin, NewPartitions, TopicPartition
from ottla_client.errors import OffsetOutOfRangeError

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]
WAYS: dict[str, dict[str, Any]] = {
    "alone": {},
    "classic": {"group": True},
    "consumer": {"group": True, "group_protocol": "consumer"},
    "pattern": {"pattern": True},
}


async def grown(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New, way: str, **options: Any
) -> tuple[Any, str]:
    """A consumer of "latest" that reads a topic's partition, which has old records, when the topic gets another one."""
    topic = new_topic()
    put(broker, topic, numbered(5))
    given = {**WAYS[way], **options, "auto_offset_reset": "latest"}
    if given.pop("group", False):
        given["group_id"] = new_name("group")
    pattern = given.pop("pattern", False)
    consumer = await new_consumer(*(() if pattern else (topic,)), metadata_max_age_ms=200, **given)
    if pattern:
        consumer.subscribe(pattern=f"{topic}.*")
    first = TopicPartition(topic, 0)
    while not consumer.assignment():
        await consumer.poll(50)
    assert await consumer.position(first) == 5  # the old ones are skipped
    async with Admin(broker.bootstrap) as admin:
        await admin.create_partitions({topic: NewPartitions(2)})
    put(broker, topic, numbered(3), partition=1)
    return consumer, topic


async def values(consumer: Any, count: int) -> list[tuple[int, int]]:
    found: list[tuple[int, int]] = []
    async with asyncio.timeout(60):
        while len(found) < count:
            found += [(record.partition, record.offset) for record in await consumer.poll(50)]
    return found


@pytest.mark.parametrize(
    "way", ["alone", "classic", "pattern", pytest.param("consumer", marks=pytest.mark.not_kafka_3)]
)
async def test_an_added_partition_is_read_from_its_start(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New, way: str
) -> None:
    consumer, _ = await grown(broker, new_topic, new_name, new_consumer, way)
    assert await values(consumer, 3) == [(1, 0), (1, 1), (1, 2)]


async def test_a_topic_that_comes_later_is_read_from_its_start(
    broker: BrokerProcess, new_name: New, new_consumer: New
) -> None:
    """It matches the pattern, or was subscribed by name before it was created."""
    prefix = new_name("later")
    matched, named = f"{prefix}-matched", f"{prefix}-named"
    by_pattern = await new_consumer(metadata_max_age_ms=200, auto_offset_reset="latest")
    by_pattern.subscribe(pattern=f"{prefix}-matched")
    by_name = await new_consumer(named, metadata_max_age_ms=200, auto_offset_reset="latest")
    await until(lambda: by_pattern._engine._matched)
    await until(lambda: TopicPartition(named, 0) in by_name._engine.new_partitions)
    for topic in (matched, named):
        create_topic(broker, topic, 1)
        put(broker, topic, numbered(3))
    for consumer in (by_pattern, by_name):
        assert await values(consumer, 3) == [(0, 0), (0, 1), (0, 2)]


async def test_a_setting_says_where_new_partitions_begin(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    consumer, topic = await grown(
        broker, new_topic, new_name, new_consumer, "alone", auto_offset_reset_new_partitions="latest"
    )
    added = TopicPartition(topic, 1)
    await until(lambda: added in consumer.assignment())
    assert await consumer.position(added) == 3
    refusing, topic = await grown(
        broker, new_topic, new_name, new_consumer, "alone", auto_offset_reset_new_partitions="none"
    )
    with pytest.raises(OffsetOutOfRangeError, match="auto_offset_reset"):
        await values(refusing, 1)
