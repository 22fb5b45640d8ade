"""Share consumers with a broker: Ottla, or Apache Kafka 4 by ``--kafka=4``."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import pytest
from tests.client.consumer.conftest import numbered, put

from ottla_client import AcknowledgeType, Consumer, ShareConsumer, TopicPartition
from ottla_client.errors import (
    AcknowledgementError,
    BrokerError,
    ClientError,
    ClosedError,
    ConfigurationError,
    DeserializationError,
    GroupError,
    PollIntervalExceededError,
)
from ottla_client.sync import ShareConsumer as SyncShareConsumer
from ottla_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

New = Callable[..., Any]
ACCEPT, RELEASE, REJECT = AcknowledgeType

pytestmark = pytest.mark.not_kafka_3


async def take(consumer: ShareConsumer, count: int) -> list[Any]:
    """The next ``count`` records, in the implicit mode."""
    records: list[Any] = []
    async with asyncio.timeout(60):
        while len(records) < count:
            records += await consumer.poll(200)
    assert len(records) == count
    return records


async def some(consumer: ShareConsumer) -> list[Any]:
    """Records of one poll."""
    async with asyncio.timeout(60):
        while True:
            if records := await consumer.poll(200):
                return records


def offsets(records: list[Any]) -> list[int]:
    return [record.offset for record in records]


async def test_records_are_accepted_when_more_are_asked_for(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    put(broker, topic, numbered(30), batch=10, key=b"k")
    consumer = await new_consumer(
        topic, group_id=group, share_acquire_mode="record_limit", max_poll_records=4
    )
    assert consumer.subscription() == {topic}
    first = await some(consumer)
    assert offsets(first) == [0, 1, 2, 3]
    assert [(record.key, record.value, record.delivery_count) for record in first][:2] == [
        (b"k", b"0", 1),
        (b"k", b"1", 1),
    ]
    assert consumer.assignment() == {TopicPartition(topic, 0)}
    assert consumer.acquisition_lock_timeout_ms() == 30_000
    with pytest.raises(AcknowledgementError, match="implicitly"):
        consumer.acknowledge(first[0])
    second = await some(consumer)
    assert offsets(second) == [4, 5, 6, 7]
    # The next member gets what this one has not accepted. A close accepts what was handed out.
    assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}
    assert await consumer.commit_sync() == {}
    metrics = consumer.metrics()["consumer-share-fetch-manager-metrics"]
    assert metrics["records-consumed-total"] == metrics["acknowledgements-send-total"] == 8
    assert metrics["acknowledgements-error-total"] == 0
    await some(consumer)
    await consumer.close()
    with pytest.raises(ClosedError):
        await consumer.poll()
    other = await new_consumer(topic, group_id=group)
    assert offsets(await take(other, 18)) == list(range(12, 30))


async def test_explicit_acknowledgements(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    partition = TopicPartition(topic, 0)
    put(broker, topic, numbered(6))
    consumer = await new_consumer(topic, group_id=group, share_acknowledgement_mode="explicit")
    outcomes: list[tuple[Mapping[TopicPartition, frozenset[int]], ClientError | None]] = []
    consumer.set_acknowledgement_commit_callback(lambda *outcome: outcomes.append(outcome))
    records = await some(consumer)
    assert offsets(records) == list(range(6))
    with pytest.raises(AcknowledgementError, match="6 records of the last poll"):
        await consumer.poll()
    for record, kind in zip(records, [ACCEPT, RELEASE, REJECT, ACCEPT], strict=False):
        consumer.acknowledge(record, kind)
    consumer.acknowledge(records[3], RELEASE)  # the last call counts
    assert await consumer.commit_sync() == {partition: None}
    assert outcomes == [({partition: frozenset({0, 1, 2, 3})}, None)]
    with pytest.raises(AcknowledgementError, match="was sent before"):
        consumer.acknowledge(records[0])
    with pytest.raises(AcknowledgementError, match="2 records of the last poll"):
        await consumer.poll()
    for record in records[4:]:
        consumer.acknowledge(record)
    again = await some(consumer)
    assert [(record.offset, record.delivery_count) for record in again] == [(1, 2), (3, 2)]
    consumer.acknowledge(again[0])
    # Closing sends the acknowledgement, and releases the record without one.
    await consumer.close()
    assert outcomes[1:] == [({partition: frozenset({4, 5})}, None), ({partition: frozenset({1})}, None)]
    other = await new_consumer(topic, group_id=group)
    assert [(record.offset, record.delivery_count) for record in await take(other, 1)] == [(3, 3)]


async def test_members_share_a_partition_and_what_one_leaves_comes_to_the_other(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    options: dict[str, Any] = {
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
        "max_poll_records": 5,
    }
    first = await new_consumer(topic, **options)
    second = await new_consumer(topic, **options)
    for number in range(4):
        put(broker, topic, numbered(5, 5 * number))
    held = await some(first)
    seen = set()
    async with asyncio.timeout(60):
        while len(seen) + len(held) < 20:
            for record in await second.poll(200):
                seen.add(record.offset)
                second.acknowledge(record)
    assert seen.isdisjoint(offsets(held))
    await first.close()
    released = await some(second)
    assert offsets(released) == offsets(held)
    assert {record.delivery_count for record in released} == {2}
    for record in released:
        second.acknowledge(record)


async def test_one_by_one(broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New) -> None:
    topic, group = new_topic(2), await new_group()
    for partition in range(2):
        put(broker, topic, numbered(10), partition)
    seen: list[tuple[int, int]] = []

    async def work() -> None:
        async with ShareConsumer(topic, bootstrap_servers=broker.bootstrap, group_id=group) as consumer:
            async for record in consumer:
                if len(seen) == 3:
                    raise ZeroDivisionError
                seen.append((record.partition, record.offset))

    with pytest.raises(ZeroDivisionError):
        await asyncio.wait_for(work(), 60)
    # The record that it failed on is delivered again, and those that it had not come to.
    other = await new_consumer(topic, group_id=group)
    rest = [(record.partition, record.offset) for record in await take(other, 17)]
    assert sorted(seen + rest) == [(partition, offset) for partition in range(2) for offset in range(10)]


async def test_a_record_that_cannot_be_read(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    put(broker, topic, [b"0", b"x", b"2", b"y"])
    consumer = await new_consumer(
        topic, group_id=group, share_acknowledgement_mode="explicit", value_deserializer=int
    )
    (record,) = await some(consumer)
    consumer.acknowledge(record)
    with pytest.raises(DeserializationError, match="offset 1") as caught:
        await consumer.poll()
    consumer.acknowledge(caught.value, REJECT)
    (record,) = await some(consumer)
    assert record.offset == 2
    consumer.acknowledge(record)
    # Without a decision it is released, and comes again.
    for _ in range(2):
        with pytest.raises(DeserializationError, match="offset 3"):
            await some(consumer)


async def test_topics_come_and_go(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    one, two, group = new_topic(), new_topic(), await new_group()
    put(broker, one, [b"one"])
    put(broker, two, [b"two"])
    consumer = await new_consumer(group_id=group)
    with pytest.raises(ConfigurationError, match="subscribe"):
        await consumer.poll()
    for topic, value in ((one, b"one"), (two, b"two")):
        consumer.subscribe(topic)
        assert [record.value for record in await take(consumer, 1)] == [value]
    await consumer.unsubscribe()
    assert consumer.subscription() == consumer.assignment() == frozenset()
    with pytest.raises(ConfigurationError, match="must be names"):
        consumer.subscribe([])
    put(broker, one, [b"more"])
    consumer.subscribe([one])
    assert [record.value for record in await take(consumer, 1)] == [b"more"]


async def test_acknowledgements_after_the_connection_broke(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    put(broker, topic, numbered(2))
    consumer = await new_consumer(topic, group_id=group)
    assert offsets(await some(consumer)) == [0, 1]
    for session in consumer._engine._sessions.values():
        session._connection._transport.abort()
    (error,) = (await consumer.commit_sync()).values()
    assert isinstance(error, ClientError)
    assert not isinstance(error, BrokerError) or error.code is ErrorCode.SHARE_SESSION_NOT_FOUND
    again = await take(consumer, 2)
    assert [(record.offset, record.delivery_count) for record in again] == [(0, 2), (1, 2)]
    assert await consumer.commit_sync() == {TopicPartition(topic, 0): None}


async def test_a_consumer_that_stalls_joins_again(
    broker: BrokerProcess, new_topic: New, new_group: New, new_consumer: New
) -> None:
    topic, group = new_topic(), await new_group()
    consumer = await new_consumer(topic, group_id=group, max_poll_interval_ms=200)
    await consumer.poll(0)
    async with asyncio.timeout(60):
        while consumer._engine._member is None or consumer._engine._member.failure is None:
            await asyncio.sleep(0.01)
    with pytest.raises(PollIntervalExceededError):
        await consumer.poll(0)
    put(broker, topic, [b"a"])
    assert [record.value for record in await take(consumer, 1)] == [b"a"]


async def test_what_is_refused(
    broker: BrokerProcess, new_topic: New, new_name: New, new_consumer: New
) -> None:
    for options, reason in (
        ({}, "needs a group_id"),
        ({"group_id": "g", "share_acknowledgement_mode": "both"}, "share_acknowledgement_mode"),
        ({"group_id": "g", "share_acquire_mode": "all"}, "share_acquire_mode"),
        ({"group_id": "g", "max_poll_records": 0}, "max_poll_records"),
    ):
        with pytest.raises(ConfigurationError, match=reason):
            ShareConsumer("t", **options)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match="auto_offset_reset"):
        ShareConsumer("t", group_id="g", auto_offset_reset="earliest")  # type: ignore[call-arg]
    with pytest.raises(ClosedError, match="not started"):
        await ShareConsumer("t", group_id="g").poll()
    topic, group = new_topic(), new_name("classic")
    async with Consumer(topic, bootstrap_servers=broker.bootstrap, group_id=group) as classic:
        async with asyncio.timeout(60):
            while not classic.assignment():
                await classic.poll(50)
        consumer = await new_consumer(topic, group_id=group)
        with pytest.raises(GroupError, match=group):
            await take(consumer, 1)


def test_without_asyncio(broker: BrokerProcess, new_topic: New, new_group: New) -> None:
    topic, group = new_topic(), asyncio.run(new_group())
    put(broker, topic, numbered(4))
    options: dict[str, Any] = {
        "bootstrap_servers": broker.bootstrap,
        "group_id": group,
        "share_acknowledgement_mode": "explicit",
    }
    outcomes: list[ClientError | None] = []
    with SyncShareConsumer(topic, **options) as consumer:
        consumer.set_acknowledgement_commit_callback(lambda offsets, error: outcomes.append(error))
        for record in consumer:
            consumer.acknowledge(record, REJECT if record.offset else RELEASE)
            if record.offset == 3:
                break
        assert list(consumer.commit_sync().values()) == [None]
        assert outcomes == [None]
        again = consumer.getone()
        assert (again.offset, again.delivery_count) == (0, 2)
        consumer.acknowledge(again)
        consumer.commit_async()
        assert consumer.poll(0) == []
        assert consumer.acquisition_lock_timeout_ms() == 30_000
        assert consumer.metrics()["consumer-share-metrics"]["connection-count"] >= 1
