"""What a topic has after a write."""

from __future__ import annotations

from typing import Any

from tests.support.processes import BrokerProcess

from ottla_client.sync import Consumer
from ottla_client.types import ConsumerRecord, TopicPartition


def records(
    broker: BrokerProcess, topic: str, isolation: Any = "read_uncommitted"
) -> list[ConsumerRecord[bytes, bytes]]:
    with Consumer(
        bootstrap_servers=broker.bootstrap, auto_offset_reset="earliest", isolation_level=isolation
    ) as consumer:
        partitions = [TopicPartition(topic, number) for number in consumer.partitions_for(topic)]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        found: list[ConsumerRecord[bytes, bytes]] = []
        while any(consumer.position(partition) < end for partition, end in ends.items()):
            found += consumer.poll(200)
    return found
