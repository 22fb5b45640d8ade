"""``metrics()`` of producers and consumers, async and sync."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from tests.support.processes import BrokerProcess

from ottla_client import Consumer, Producer, TopicPartition, sync
from ottla_client.errors import RecordTooLargeError


async def test_a_producer_and_a_consumer(
    broker: BrokerProcess, new_topic: Callable[..., str], new_name: Callable[..., str]
) -> None:
    topic = new_topic()
    producer = Producer(broker.bootstrap)
    assert producer.metrics()["producer-metrics"]["record-send-total"] == 0
    async with producer:
        await producer.send_batch(topic, [b"x" * 100] * 50)
        await producer.flush()
        found = producer.metrics()
        own = found["producer-metrics"]
        assert (own["record-send-total"], own["record-error-total"], own["record-retry-total"]) == (50, 0, 0)
        assert own["request-total"] >= 1
        assert own["request-latency-max"] >= own["request-latency-avg"] > 0
        assert own["outgoing-byte-total"] > 5000
        assert own["connection-count"] >= 1
        assert own["requests-in-flight"] == 0
        assert own["buffer-available-bytes"] == own["buffer-total-bytes"]
        assert found[f"producer-topic-metrics.{topic}"]["record-send-total"] == 50
    async with Consumer(
        topic,
        bootstrap_servers=broker.bootstrap,
        group_id=new_name("group"),
        auto_offset_reset="earliest",
        enable_auto_commit=False,
    ) as consumer:
        read = 0
        while read < 50:
            read += len(await consumer.poll(1000))
        await consumer.commit()
        found = consumer.metrics()
        fetched = found["consumer-fetch-manager-metrics"]
        assert fetched["records-consumed-total"] == 50
        assert fetched["bytes-consumed-total"] > 5000
        assert fetched["records-lag-max"] == 0
        assert fetched["fetch-total"] >= 1
        assert found[f"consumer-fetch-manager-metrics.{topic}-0"] == {"records-lag": 0}
        coordinated = found["consumer-coordinator-metrics"]
        assert (coordinated["assigned-partitions"], coordinated["commit-total"]) == (1, 1)
        assert found["consumer-metrics"]["connection-count"] >= 1


async def test_refused_records_are_counted(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic(max_message_bytes=1000)
    async with Producer(broker.bootstrap) as producer:
        delivery = await producer.send(topic, b"x" * 5000)
        with pytest.raises(RecordTooLargeError):
            await delivery
        found = producer.metrics()
        assert found["producer-metrics"]["record-error-total"] == 1
        assert found[f"producer-topic-metrics.{topic}"]["record-error-total"] == 1


def test_the_clients_without_asyncio(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    topic = new_topic()
    with sync.Producer(broker.bootstrap) as producer:
        producer.send_and_wait(topic, b"x")
        assert producer.metrics()["producer-metrics"]["record-send-total"] == 1
    with sync.Consumer(bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest") as consumer:
        consumer.assign([TopicPartition(topic, 0)])
        assert consumer.getone().value == b"x"
        assert consumer.metrics()["consumer-fetch-manager-metrics"]["records-consumed-total"] == 1
