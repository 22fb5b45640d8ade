"""The topics of the coordinators stay small, however often their groups commit and their producers write."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from tests.support.depth import examples
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.waiting import wait_for

from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.coordinator.group.records import offset_key, offset_value
from ottla_protocol.records.record import encode_batch

from .conftest import START_MS, Broker, records

SEGMENT = 20_000
SETTINGS: dict[str, object] = {
    "log.cleaner.backoff.ms": 50,
    "offsets.topic.num.partitions": 1,
    "offsets.topic.segment.bytes": SEGMENT,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.segment.bytes": SEGMENT,
}


def segments(broker: BrokerProcess, topic: str) -> list[Path]:
    return sorted((broker.folder / f"{topic}-0").glob("*.log"))


def size(broker: BrokerProcess, topic: str) -> int:
    return sum(path.stat().st_size for path in segments(broker, topic))


def test_commits_and_transactions_leave_less_than_two_segments(
    own_broker: Callable[..., BrokerProcess],
) -> None:
    broker = own_broker(settings=SETTINGS)
    create_topic(broker, "t", 1)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    for offset in range(1000):
        consumer.commit(offsets=[TopicPartition("t", 0, offset)], asynchronous=False)
    consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "p"})
    producer.init_transactions(30)
    for _ in range(150):
        producer.begin_transaction()
        producer.produce("t", b"value", partition=0)
        producer.commit_transaction(30)
    for topic in ("__consumer_offsets", "__transaction_state"):
        assert int(segments(broker, topic)[-1].stem) > 300, "several segments were written"
        wait_for(lambda topic=topic: size(broker, topic) < 2 * SEGMENT, f"{topic} to be compacted")  # type: ignore[misc]
    broker.stop()

    broker = own_broker(settings=SETTINGS, folder=broker.folder)
    consumer = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "g"})
    [committed] = consumer.committed([TopicPartition("t", 0)], 30)
    assert committed.offset == 999
    consumer.close()
    producer = Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": "p"})
    producer.init_transactions(30)
    producer.begin_transaction()
    producer.produce("t", b"value", partition=0)
    producer.commit_transaction(30)


async def test_commits_to_one_partition(broker: Broker) -> None:
    """The log alone, whose cleaner looks after each segment: 300,000 commits, in `make faults` ten million."""
    log = broker.create(segment_bytes=1 << 20)
    value = offset_value(Committed(1, 0, "", START_MS))
    commits = [
        bytes(encode_batch([(START_MS, offset_key(f"g-{group}", "topic", n), value, ()) for n in range(50)]))
        for group in range(40)
    ]
    largest = 0
    for number in range(examples(500_000) // 50):
        count = len(log.segments)
        batch = memoryview(bytearray(commits[number % 40]))
        log.append(batch, leader_epoch=0, now_ms=START_MS, from_client=False)
        if len(log.segments) > count:
            await broker.cleaner._clean_dirtiest()
            largest = max(largest, log.size)
    assert largest < 2 << 20
    assert log.size < 2 << 20
    assert broker.cleaner.uncleanable == frozenset()
    assert len({record.key for record in records(log)}) == 40 * 50
