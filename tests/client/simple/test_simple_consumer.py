"""The simple consumer: fetches, offsets and commits by hand."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.admin.records import put
from tests.client.base.fake import FakeBroker
from tests.client.base.fake import Topic as FakeTopic
from tests.support.processes import BrokerProcess

from ottla_client import Consumer, Producer, SimpleConsumer, TopicPartition
from ottla_client.errors import (
    ClosedError,
    CommitFailedError,
    ConfigurationError,
    DeserializationError,
    OffsetOutOfRangeError,
    UnknownTopicError,
)
from ottla_client.sync import SimpleConsumer as SyncSimpleConsumer
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from ottla_protocol.records.record import encode_batch

Topic = Callable[..., str]
Name = Callable[..., str]
NOT_LEADER = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)


@pytest.fixture
def filled(broker: BrokerProcess, new_topic: Topic) -> TopicPartition:
    """A partition with 30 records in 10 batches, at 1000, 2000, … ms."""
    partition = TopicPartition(new_topic(retention_ms=-1), 0)
    for start in range(0, 30, 3):
        put(broker, *partition, *((start + n + 1) * 1000 for n in range(3)))
    return partition


async def test_fetching_by_hand(broker: BrokerProcess, filled: TopicPartition) -> None:
    async with SimpleConsumer(broker.bootstrap) as consumer:
        offset = await consumer.beginning_offset(filled)
        seen: list[int] = []
        while offset < await consumer.end_offset(filled):
            fetched = await consumer.fetch(filled, offset, max_bytes=200)
            seen += [record.offset for record in fetched.records]
            offset = fetched.next_offset
            assert fetched.lag == fetched.high_watermark - offset
        assert seen == list(range(30))
        # From within a batch, and from the end.
        middle = await consumer.fetch(filled, 4)
        assert [record.offset for record in middle.records] == list(range(4, 30))
        nothing = await consumer.fetch(filled, 30, max_wait_ms=0)
        assert (nothing.records, nothing.next_offset, nothing.high_watermark) == ([], 30, 30)
        assert nothing.log_start_offset == 0


async def test_a_response_of_very_many_records_is_cut(
    broker: BrokerProcess, filled: TopicPartition, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("ottla_client.simple_consumer._AT_ONCE", 10)
    async with SimpleConsumer(broker.bootstrap) as consumer:
        first = await consumer.fetch(filled, 1)
        assert [record.offset for record in first.records] == list(range(1, 12))  # whole batches
        assert first.next_offset == 12
        rest = await consumer.fetch(filled, 25)
        assert [record.offset for record in rest.records] == list(range(25, 30))


async def test_offsets_by_time_and_at_the_ends(broker: BrokerProcess, filled: TopicPartition) -> None:
    async with SimpleConsumer(broker.bootstrap) as consumer:
        assert await consumer.partitions_for(filled.topic) == [0]
        assert f":{broker.port}" in str(await consumer.leader(filled))
        assert [await consumer.offset_at(filled, at) for at in (0, 5_000, 5_001, 30_001)] == [0, 4, 5, 30]
        assert (await consumer.beginning_offset(filled), await consumer.end_offset(filled)) == (0, 30)


async def test_errors_name_what_is_wrong(broker: BrokerProcess, filled: TopicPartition) -> None:
    async with SimpleConsumer(broker.bootstrap, default_api_timeout_ms=20_000) as consumer:
        with pytest.raises(
            OffsetOutOfRangeError, match=r"no offset 31: its log has 0 to 29, and 30 is the next"
        ):
            await consumer.fetch(filled, 31)
        with pytest.raises(ConfigurationError, match="negative"):
            await consumer.fetch(filled, -1)
        with pytest.raises(ConfigurationError, match="max_bytes"):
            await consumer.fetch(filled, 0, max_bytes=0)
        with pytest.raises(ConfigurationError, match="max_wait_ms"):
            await consumer.fetch(filled, 0, max_wait_ms=30_000)
        missing = TopicPartition(filled.topic, 7)
        with pytest.raises(UnknownTopicError, match=r"it has 1 partition(?!s)"):
            await consumer.fetch(missing, 0)
        # A partition that fails doesn't affect the others.
        found = await consumer.fetch_many({filled: 0, missing: 0})
        assert isinstance(found[missing], UnknownTopicError)
        assert len(found[filled].records) == 30  # type: ignore[union-attr]
        with pytest.raises(ConfigurationError, match="set group_id"):
            await consumer.commit({filled: 3})
    with pytest.raises(ClosedError):
        await consumer.fetch(filled, 0)


async def test_a_bad_record_is_reached_after_the_good_ones(
    broker: BrokerProcess, filled: TopicPartition
) -> None:
    def refuse(value: bytes) -> bytes:
        raise ValueError(value)

    async with SimpleConsumer(broker.bootstrap, value_deserializer=refuse) as consumer:
        with pytest.raises(DeserializationError) as raised:
            await consumer.fetch(filled, 3)
        assert raised.value.offset == 3


async def test_commits_under_a_name(broker: BrokerProcess, filled: TopicPartition, new_name: Name) -> None:
    group = new_name("group")
    async with SimpleConsumer(broker.bootstrap, group_id=group) as consumer:
        assert await consumer.committed([filled]) == {}
        await consumer.commit({filled: 12})
        assert (await consumer.committed([filled]))[filled].offset == 12
        async with Consumer(filled.topic, bootstrap_servers=broker.bootstrap, group_id=group) as member:
            # A member continues from the offset, and commits for itself from then on.
            assert (await member.getone()).offset == 12
            with pytest.raises(CommitFailedError, match="the group has members, and only members may commit"):
                await consumer.commit({filled: 20})


async def test_several_tasks_share_it(broker: BrokerProcess, new_topic: Topic) -> None:
    topic = new_topic(3)
    async with Producer(broker.bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"%d" % number, partition=number)
    async with SimpleConsumer(broker.bootstrap) as consumer:
        partitions = [TopicPartition(topic, number) for number in range(3)]
        fetched = await asyncio.gather(*(consumer.fetch(each, 0) for each in partitions))
        assert [[record.value for record in each.records] for each in fetched] == [[b"0"], [b"1"], [b"2"]]


def test_without_asyncio(broker: BrokerProcess, filled: TopicPartition, new_name: Name) -> None:
    with SyncSimpleConsumer(broker.bootstrap, group_id=new_name("group")) as consumer:
        fetched = consumer.fetch(filled, consumer.offset_at(filled, 29_000))
        assert [record.offset for record in fetched.records] == [28, 29]
        consumer.commit({filled: fetched.next_offset})
        assert consumer.committed([filled])[filled].offset == 30


async def test_a_moved_leader_is_found_again() -> None:
    """The first leader refuses, and one that the metadata named has gone."""
    partition = TopicPartition("t", 0)
    records = encode_batch([(1, None, b"v", ())])

    def refuse(header: Any, request: Any) -> FetchResponse:
        return answer(NOT_LEADER, b"")

    def serve(header: Any, request: Any) -> FetchResponse:
        return answer(0, records)

    def answer(code: int, data: bytes) -> FetchResponse:
        row = PartitionData(partition_index=0, error_code=code, high_watermark=1, records=data)
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[row])])

    async with FakeBroker() as first, FakeBroker() as second:
        addresses = {1: ("127.0.0.1", first.port), 2: ("127.0.0.1", second.port)}
        for broker in (first, second):
            broker.nodes = dict(addresses)
            broker.topics = {"t": FakeTopic()}
        first.answers[ApiKey.FETCH] = refuse
        second.answers[ApiKey.FETCH] = serve
        quick = {"retry_backoff_ms": 5, "retry_backoff_max_ms": 20, "default_api_timeout_ms": 60_000}
        async with SimpleConsumer(first.bootstrap, **quick) as consumer:  # type: ignore[arg-type]
            fetching = asyncio.create_task(consumer.fetch(partition, 0))
            async with asyncio.timeout(60):
                while first.asked[ApiKey.FETCH] < 2:
                    await asyncio.sleep(0.005)
            for broker in (first, second):
                broker.topics["t"].partitions[0].leader = 2
            fetched = await asyncio.wait_for(fetching, 60)
            assert [record.value for record in fetched.records] == [b"v"]
            # The leader dies; another one has its records.
            await second.stop()
            first.answers[ApiKey.FETCH] = serve
            first.nodes = {1: addresses[1]}
            first.topics["t"].partitions[0].leader = 1
            again = await asyncio.wait_for(consumer.fetch(partition, 0), 60)
            assert again.next_offset == 1
