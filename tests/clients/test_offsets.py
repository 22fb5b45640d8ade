"""Beginning and end offsets, offsets by time, seeking, lag and deleted records, as clients see them."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import aiokafka
import confluent_kafka as ck
import confluent_kafka.admin as ca
import pytest
from tests.clients.kits import KITS, Kit, Sent, kafka
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

Topic = Callable[..., str]


class Bounds(NamedTuple):
    """A client's offsets for a partition."""

    beginning: int
    end: int
    by_time: list[int | None]


def ask(kit: Kit, broker: BrokerProcess, topic: str, times: list[int]) -> Bounds:
    """Beginning, end, and the first offset at or after each time (None: there is none)."""
    if kit.name == "confluent":
        consumer = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": "unused"})
        try:
            partition = ck.TopicPartition(topic, 0)
            low, high = consumer.get_watermark_offsets(partition, timeout=60)
            found = [
                consumer.offsets_for_times([ck.TopicPartition(topic, 0, t)], timeout=60)[0].offset
                for t in times
            ]
            return Bounds(low, high, [None if offset < 0 else offset for offset in found])
        finally:
            consumer.close()
    if kit.name == "kafka-python":
        python_consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=None)
        try:
            at = kafka.TopicPartition(topic, 0)
            by_time = [python_consumer.offsets_for_times({at: t})[at] for t in times]
            return Bounds(
                python_consumer.beginning_offsets([at])[at],
                python_consumer.end_offsets([at])[at],
                [one and one.offset for one in by_time],
            )
        finally:
            python_consumer.close()

    async def run() -> Bounds:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=broker.bootstrap)
        await consumer.start()
        try:
            at = aiokafka.TopicPartition(topic, 0)
            by_time = [(await consumer.offsets_for_times({at: t}))[at] for t in times]
            beginning = (await consumer.beginning_offsets([at]))[at]
            return Bounds(
                beginning, (await consumer.end_offsets([at]))[at], [one and one.offset for one in by_time]
            )
        finally:
            await consumer.stop()

    return asyncio.run(run())


@pytest.mark.parametrize("codec", ["none", "gzip"])
def test_offsets_for_times_beginning_and_end(
    kit: Kit, codec: str, broker: BrokerProcess, new_topic: Topic
) -> None:
    topic = new_topic()
    assert ask(kit, broker, topic, [0]) == Bounds(0, 0, [None])
    base = int(time.time() * 1000) - 1_000_000
    for start in range(0, 30, 10):
        sent = [Sent(b"k", b"v", timestamp=base + i * 1000) for i in range(start, start + 10)]
        kit.produce(broker, topic, sent, codec=codec)
    times = [0, base, base + 1, base + 5000, base + 14_001, base + 29_000, base + 29_001]
    assert ask(kit, broker, topic, times) == Bounds(0, 30, [0, 0, 1, 5, 15, 29, None])


def test_offsets_after_records_were_deleted(kit: Kit, broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic()
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v") for i in range(20)])
    admin = ca.AdminClient({"bootstrap.servers": broker.bootstrap})
    deleted = admin.delete_records([ck.TopicPartition(topic, 0, 7)])
    assert [future.result(60).low_watermark for future in deleted.values()] == [7]
    assert ask(kit, broker, topic, [0]) == Bounds(7, 20, [7])
    for reader in KITS:
        assert [g.offset for g in reader.consume(broker, topic, 13, offset=7)] == list(range(7, 20))


def test_a_reader_below_the_start_is_reset(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Callable[..., str]
) -> None:
    from tests.clients.members import MEMBERS, shared_out

    topic = new_topic()
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v") for i in range(20)])
    with MEMBERS[kit.name](broker.bootstrap, new_name("group"), [topic]) as member:
        shared_out([member], topic, 1)
        wait_for(lambda: len(member.records) == 20, "all records")
        admin = ca.AdminClient({"bootstrap.servers": broker.bootstrap})
        next(iter(admin.delete_records([ck.TopicPartition(topic, 0, 15)]).values())).result(60)

        def seek(consumer: Any) -> None:
            if kit.name == "confluent":
                consumer.seek(ck.TopicPartition(topic, 0, 3))
            elif kit.name == "kafka-python":
                consumer.seek(kafka.TopicPartition(topic, 0), 3)
            else:
                consumer.seek(aiokafka.TopicPartition(topic, 0), 3)

        member.call(seek)
        wait_for(lambda: len(member.records) >= 25, "the records from the new start on")
        assert [got.offset for _, got in member.records[20:]] == list(range(15, 20))


def test_position_seek_and_lag(
    kit: Kit, broker: BrokerProcess, new_topic: Topic, new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(), new_name("group")
    kit.produce(broker, topic, [Sent(b"%d" % i, b"v") for i in range(50)])
    if kit.name == "confluent":
        consumer = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
        )
        try:
            consumer.assign([ck.TopicPartition(topic, 0, 30)])
            assert consumer.consume(1, 20)[0].offset() == 30
            assert consumer.position([ck.TopicPartition(topic, 0)])[0].offset == 31
            consumer.commit(asynchronous=False)
            consumer.seek(ck.TopicPartition(topic, 0, 45))
            assert consumer.consume(1, 20)[0].offset() == 45
            consumer.seek(ck.TopicPartition(topic, 0, ck.OFFSET_BEGINNING))
            assert consumer.consume(1, 20)[0].offset() == 0
            committed = consumer.committed([ck.TopicPartition(topic, 0)], timeout=60)[0].offset
            assert (
                consumer.get_watermark_offsets(ck.TopicPartition(topic, 0), cached=False)[1] - committed == 19
            )
        finally:
            consumer.close()
    elif kit.name == "kafka-python":
        python_consumer = kafka.KafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False, max_poll_records=1
        )
        try:
            at = kafka.TopicPartition(topic, 0)
            python_consumer.assign([at])
            python_consumer.seek(at, 30)
            assert next(python_consumer).offset == 30
            assert python_consumer.position(at) == 31
            python_consumer.commit()
            python_consumer.seek_to_end(at)
            assert python_consumer.position(at) == 50
            python_consumer.seek_to_beginning(at)
            assert next(python_consumer).offset == 0
            assert python_consumer.end_offsets([at])[at] - python_consumer.committed(at) == 19
            assert python_consumer.highwater(at) == 50
        finally:
            python_consumer.close()
    else:

        async def run() -> None:
            consumer = aiokafka.AIOKafkaConsumer(
                bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
            )
            await consumer.start()
            try:
                at = aiokafka.TopicPartition(topic, 0)
                consumer.assign([at])
                consumer.seek(at, 30)
                assert (await asyncio.wait_for(consumer.getone(), 60)).offset == 30
                assert await consumer.position(at) == 31
                await consumer.commit()
                await consumer.seek_to_end(at)
                assert await consumer.position(at) == 50
                await consumer.seek_to_beginning(at)
                assert (await asyncio.wait_for(consumer.getone(), 60)).offset == 0
                assert consumer.highwater(at) - (await consumer.committed(at) or 0) == 19
            finally:
                await consumer.stop()

        asyncio.run(run())


def test_metadata_of_a_commit_comes_back(
    broker: BrokerProcess, new_topic: Topic, new_name: Callable[..., str]
) -> None:
    topic, group = new_topic(), new_name("group")
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": group, "enable.auto.commit": False}
    )
    try:
        consumer.commit(offsets=[ck.TopicPartition(topic, 0, 5, "zwölf")], asynchronous=False)
        found = consumer.committed([ck.TopicPartition(topic, 0)], timeout=60)[0]
        assert (found.offset, found.metadata) == (5, "zwölf")
        with pytest.raises(ck.KafkaException) as caught:
            consumer.commit(offsets=[ck.TopicPartition(topic, 0, 6, "x" * 5000)], asynchronous=False)
        assert caught.value.args[0].code() == ck.KafkaError.OFFSET_METADATA_TOO_LARGE
        assert consumer.committed([ck.TopicPartition(topic, 0)], timeout=60)[0].offset == 5
    finally:
        consumer.close()

    async def run() -> None:
        other = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=broker.bootstrap, group_id=group, enable_auto_commit=False
        )
        await other.start()
        try:
            at = aiokafka.TopicPartition(topic, 0)
            other.assign([at])
            assert await other.committed(at) == 5
            await other.commit({at: (7, "from another client")})
        finally:
            await other.stop()

    asyncio.run(run())
    python_consumer = kafka.KafkaConsumer(bootstrap_servers=broker.bootstrap, group_id=group)
    try:
        found = python_consumer.committed(kafka.TopicPartition(topic, 0), metadata=True)
        assert (found.offset, found.metadata) == (7, "from another client")
    finally:
        python_consumer.close(autocommit=False)
