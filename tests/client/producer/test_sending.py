"""Sending to a real broker that works."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable, Sequence
from itertools import pairwise
from time import time_ns
from typing import Any

import pytest
from tests.client.producer.conftest import NewProducer
from tests.client.producer.reading import partitions_of, read_partition, read_topic
from tests.support.processes import BrokerProcess

from ottla_client.errors import (
    ClosedError,
    ConfigurationError,
    RecordTooLargeError,
    SerializationError,
    UnknownTopicError,
)
from ottla_client.producer import BatchDeliveryError
from ottla_client.producer.partitioner import partition_for_key

NewTopic = Callable[..., str]

NOW = time_ns() // 1_000_000
"""Older records would be deleted by retention."""


async def test_a_record_with_everything(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(3)
    headers = [("a", b"1"), ("a", None), ("ü", b"")]
    async with new_producer(broker.bootstrap) as producer:
        metadata = await producer.send_and_wait(topic, b"value", b"key", timestamp_ms=NOW, headers=headers)
        assert metadata == (topic, partition_for_key(b"key", 3), 0, NOW)
        tombstone = await producer.send_and_wait(topic, None, b"key")
        chosen = await producer.send_and_wait(topic, b"there", partition=2, headers={"x": b"y"})
        assert (chosen.partition, await producer.partitions_for(topic)) == (2, [0, 1, 2])
    first, second, *_ = read_partition(broker.port, topic, metadata.partition)
    assert (first.timestamp, first.key, first.value, first.headers) == (
        NOW,
        b"key",
        b"value",
        tuple(headers),
    )
    assert (second.offset, second.value, second.timestamp) == (1, None, tombstone.timestamp)
    assert read_partition(broker.port, topic, 2)[chosen.offset].headers == (("x", b"y"),)


async def test_many_records_keep_their_order(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(2)
    async with new_producer(broker.bootstrap, batch_size=2000, linger_ms=1) as producer:
        deliveries = [await producer.send(topic, b"%d" % number, partition=1) for number in range(5000)]
        found = await asyncio.gather(*deliveries)
        assert all(delivery.done() for delivery in deliveries)
    assert [each.offset for each in found] == list(range(5000))
    records = read_partition(broker.port, topic, 1)
    assert [record.value for record in records] == [b"%d" % number for number in range(5000)]
    assert [record.timestamp for record in records] == [each.timestamp for each in found]


async def test_without_a_key_batches_go_round(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(4)
    async with new_producer(broker.bootstrap, batch_size=1000) as producer:
        found = await asyncio.gather(*[await producer.send(topic, bytes(86)) for _ in range(1000)])
    switches = sum(a.partition != b.partition for a, b in pairwise(found))
    assert {each.partition for each in found} == {0, 1, 2, 3}
    assert switches <= 100, "one batch of ten records after the other"


async def test_mixed_records_in_one_batch(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    given: list[tuple[bytes | None, bytes | None, tuple[tuple[str, bytes], ...]]] = [
        (b"plain", None, ()),
        (b"keyed", b"k", ()),
        (b"plain again", None, ()),
        (b"headed", None, (("h", b"1"),)),
        (None, b"gone", ()),
        (b"last", None, ()),
    ]
    async with new_producer(broker.bootstrap) as producer:
        for value, key, headers in given:
            await producer.send(topic, value, key, headers=headers)
    records = read_partition(broker.port, topic)
    assert [(record.value, record.key, record.headers) for record in records] == given


@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd"])
async def test_compressed(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, codec: str
) -> None:
    topic = new_topic()
    values = [b"value %d " % number * 5 for number in range(2000)]
    async with new_producer(broker.bootstrap, compression_type=codec) as producer:
        await producer.send_batch(topic, values)
    assert [record.value for record in read_partition(broker.port, topic)] == values


@pytest.mark.parametrize("acks", [0, 1])
async def test_fewer_acknowledgements(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer, acks: int
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, acks=acks) as producer:
        metadata = await producer.send_and_wait(topic, b"v")
        assert metadata.offset == (-1 if acks == 0 else 0)
        await producer.send_batch(topic, [b"%d" % number for number in range(3000)])
    async with asyncio.timeout(60):
        while len(values := [record.value for record in read_partition(broker.port, topic)]) < 3001:
            await asyncio.sleep(0.02)
    assert values == [b"v", *(b"%d" % number for number in range(3000))]


async def test_time_of_the_broker(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(message_timestamp_type="LogAppendTime")
    async with new_producer(broker.bootstrap) as producer:
        metadata = await producer.send_and_wait(topic, b"v", timestamp_ms=5)
    assert metadata.timestamp > 1_000_000_000_000


async def test_batches(broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer) -> None:
    topic = new_topic(3)
    values = [b"%d" % number * (number % 7) for number in range(20_000)]
    async with new_producer(broker.bootstrap, batch_size=10_000) as producer:
        delivery = await producer.send_batch(topic, values)
        ranges = await delivery
        assert len(delivery) == 20_000
        assert ranges == delivery.result()
        assert not await (await producer.send_batch(topic, []))
    placed = {}
    for each in ranges:
        for number, index in enumerate(each.indices):
            placed[each.partition, each.base_offset + number] = values[index]
    assert len(placed) == len(values)
    for partition in range(3):
        for record in read_partition(broker.port, topic, partition):
            assert placed.pop((partition, record.offset)) == record.value
    assert not placed
    assert [index for each in ranges for index in each.indices] == list(range(20_000)), "order of sending"


async def test_batches_with_keys(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(3)
    count = 3000
    keys = [None if number % 10 == 9 else b"key %d" % (number % 50) for number in range(count)]
    values = [b"%d" % number for number in range(count)]
    stamps = list(range(NOW, NOW + count))
    headers: list[Any] = [[("n", b"%d" % number)] if number % 3 else () for number in range(count)]
    async with new_producer(broker.bootstrap) as producer:
        await producer.send_batch(topic, values, keys=keys, timestamps_ms=stamps, headers=headers)
        keyed = await (await producer.send_batch(topic, values, keys=[b"k"] * count))
        assert {each.partition for each in keyed} == {partition_for_key(b"k", 3)}
    seen = 0
    for partition in range(3):
        last = -1
        for record in read_partition(broker.port, topic, partition):
            if record.key == b"k":
                continue
            number = int(record.value or b"")
            assert number > last
            last = number
            seen += 1
            assert (record.key, record.timestamp) == (keys[number], stamps[number])
            assert list(record.headers) == list(headers[number])
            if record.key is not None:
                assert partition == partition_for_key(record.key, 3)
    assert seen == count


async def test_arrow(broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer) -> None:
    pa = pytest.importorskip("pyarrow")
    topic = new_topic(2)
    table = pa.table(
        {
            "value": pa.array(["a", None, "c"]),
            "key": pa.array([b"1", b"2", None], pa.binary()),
            "partition": pa.array([1, 0, 1], pa.int32()),
            "timestamp": pa.array([NOW, NOW + 1, NOW + 2], pa.timestamp("ms")),
            "headers": pa.array([[("h", b"1")], None, []], pa.map_(pa.string(), pa.binary())),
        }
    )
    async with new_producer(broker.bootstrap) as producer:
        ranges = await (await producer.send_arrow(topic, table))
        assert {each.partition: list(each.indices) for each in ranges} == {1: [0, 2], 0: [1]}
        await (await producer.send_arrow(topic, pa.record_batch({"value": pa.array([b"plain"])})))
        with pytest.raises(ConfigurationError, match="allowed are value, key"):
            await producer.send_arrow(topic, pa.table({"values": [b"a"]}))
        with pytest.raises(ConfigurationError, match="binary or string"):
            await producer.send_arrow(topic, pa.table({"value": [1]}))
    rows = [
        (record.timestamp, record.key, record.value, record.headers)
        for record in read_topic(broker.port, topic)
    ]
    assert (NOW + 1, b"2", None, ()) in rows
    assert (NOW, b"1", b"a", (("h", b"1"),)) in rows
    assert (NOW + 2, None, b"c", ()) in rows
    assert len(rows) == 4


async def test_serializers_and_partitioner(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(3)
    asked: list[tuple[str, bytes | None, Sequence[int]]] = []

    def last(topic: str, key: bytes | None, partitions: Sequence[int]) -> int:
        asked.append((topic, key, partitions))
        return partitions[-1]

    async with new_producer(
        broker.bootstrap,
        key_serializer=str.encode,
        value_serializer=lambda value: json.dumps(value).encode(),
        partitioner=last,
    ) as producer:
        metadata = await producer.send_and_wait(topic, {"a": 1}, "key")
        assert metadata.partition == 2
        assert asked == [(topic, b"key", (0, 1, 2))]
        await producer.send_batch(topic, [{"b": 2}, None], keys=["x", None])
        with pytest.raises(SerializationError, match="not JSON serializable; nothing was sent") as caught:
            await producer.send(topic, {1, 2})
        assert isinstance(caught.value.__cause__, TypeError)
        with pytest.raises(SerializationError):
            await producer.send_batch(topic, [{"fine": 1}, {1, 2}])
    assert [record.value for record in read_topic(broker.port, topic)] == [b'{"a": 1}', b'{"b": 2}', None]


async def test_a_partitioner_that_returns_an_invalid_partition(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(2)
    async with new_producer(broker.bootstrap, partitioner=lambda *_: 7) as producer:
        with pytest.raises(ConfigurationError, match="the partitioner returned 7"):
            await producer.send(topic, b"v")


@pytest.mark.parametrize(
    ("value", "options", "says"),
    [
        ("text", {}, "a str; it must be bytes: give a value_serializer"),
        (7, {}, "an? int; it must be bytes"),
        (b"v", {"headers": [("a", 1)]}, "headers are pairs"),
        (b"v", {"headers": [(b"a", b"1")]}, "headers are pairs"),
        (b"v", {"headers": ["ab", "c"]}, "headers are pairs"),
        (b"v", {"timestamp_ms": -1}, "timestamp"),
        (b"v", {"timestamp_ms": 2**63}, "timestamp"),
        (b"v", {"key": "text"}, "give a key_serializer"),
    ],
)
async def test_what_cannot_be_sent(
    broker: BrokerProcess,
    new_topic: NewTopic,
    new_producer: NewProducer,
    value: Any,
    options: dict[str, Any],
    says: str,
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap) as producer:
        with pytest.raises(SerializationError, match=says):
            await producer.send(topic, value, **options)
    assert not read_topic(broker.port, topic)


async def test_columns_that_do_not_fit(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap) as producer:
        with pytest.raises(ConfigurationError, match="1 keys for 2 values"):
            await producer.send_batch(topic, [b"a", b"b"], keys=[b"k"])
        with pytest.raises(ConfigurationError, match="single value"):
            await producer.send_batch(topic, b"ab")


async def test_too_large_for_the_producer(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, max_request_size=10_000, buffer_memory=20_000) as producer:
        with pytest.raises(RecordTooLargeError, match=r"10000 of max_request_size.*nothing was sent"):
            await producer.send(topic, bytes(10_000))
        with pytest.raises(RecordTooLargeError, match="max_request_size"):
            await producer.send_batch(topic, [b"small", bytes(10_000)])
        assert (await producer.send_and_wait(topic, bytes(9_000))).offset == 0
    assert len(read_topic(broker.port, topic)) == 1


async def test_batches_too_large_for_the_topic_are_split(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(max_message_bytes=3000)
    values: list[bytes] = [b"%04d" % number * 20 for number in range(1000)]
    values[500] = bytes(5000)
    async with new_producer(broker.bootstrap) as producer:
        delivery = await producer.send_batch(topic, values, partition=0)
        with pytest.raises(BatchDeliveryError, match="1 of 1000 records") as caught:
            await delivery
        ((indices, error),) = caught.value.failed
        assert list(indices) == [500]
        assert isinstance(error, RecordTooLargeError)
        assert "max.message.bytes" in str(error)
        assert sum(each.count for each in caught.value.delivered) == 999
        single = await producer.send(topic, bytes(4000), partition=0)
        with pytest.raises(RecordTooLargeError):
            await single
        assert (await producer.send_and_wait(topic, b"after", partition=0)).offset == 999
    del values[500]
    assert [record.value for record in read_partition(broker.port, topic)] == [*values, b"after"]


async def test_topics_that_do_not_exist(
    broker: BrokerProcess, new_topic: NewTopic, new_name: Callable[..., str], new_producer: NewProducer
) -> None:
    topic = new_topic(2)
    made = new_name("made")
    async with new_producer(broker.bootstrap) as producer:
        assert (await producer.send_and_wait(made, b"v")).offset == 0
    async with new_producer(broker.bootstrap, allow_auto_create_topics=False, max_block_ms=700) as producer:
        with pytest.raises(UnknownTopicError, match="does not exist"):
            await producer.send(new_name("absent"), b"v")
        with pytest.raises(UnknownTopicError, match="has no partition 2; it has 0 to 1"):
            await producer.send(topic, b"v", partition=2)
        with pytest.raises(ConfigurationError, match="it must be a name"):
            await producer.send("", b"v")
    assert partitions_of(broker.port, made) == 1


async def test_one_record_is_waited_for_by_many(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, linger_ms=50) as producer:
        delivery = await producer.send(topic, b"v")
        called = asyncio.Event()
        delivery.add_done_callback(lambda _: called.set())
        assert not delivery.done()
        with pytest.raises(asyncio.InvalidStateError):
            delivery.result()
        waiting = [asyncio.ensure_future(_wait(delivery)) for _ in range(3)]
        await asyncio.sleep(0)
        waiting[0].cancel()
        await asyncio.wait(waiting)
        assert waiting[0].cancelled()
        assert waiting[1].result() == waiting[2].result() == delivery.result()
        await called.wait()
        assert "delivered" in repr(delivery)


async def _wait(delivery: Any) -> Any:
    return await delivery


async def test_flush_sends_what_lingers(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic()
    async with new_producer(broker.bootstrap, linger_ms=60_000) as producer:
        delivery = await producer.send(topic, b"v")
        await producer.flush(10)
        assert delivery.done()
        await producer.send(topic, b"w")
    assert len(read_topic(broker.port, topic)) == 2, "and so does close"
    with pytest.raises(ClosedError):
        await producer.send(topic, b"x")
    with pytest.raises(ClosedError):
        await producer.flush()


async def test_sends_that_wait_for_memory_do_not_wait_for_linger(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(8)
    async with new_producer(
        broker.bootstrap, buffer_memory=3000, linger_ms=60_000, max_block_ms=20_000
    ) as producer:
        sends = (producer.send(topic, bytes(2000), partition=number % 8) for number in range(40))
        await asyncio.gather(*sends)
    assert len(read_topic(broker.port, topic)) == 40


async def test_a_buffer_smaller_than_what_is_sent(
    broker: BrokerProcess, new_topic: NewTopic, new_producer: NewProducer
) -> None:
    topic = new_topic(8)
    async with new_producer(broker.bootstrap, buffer_memory=3000, linger_ms=60_000) as producer:
        for number in range(300):
            await producer.send(topic, bytes(500), partition=number % 8)
        await producer.send_batch(topic, [bytes(500)] * 300)
        await producer.flush()
        assert producer._accumulator.memory.free == 3000
    assert len(read_topic(broker.port, topic)) == 600
