"""Requests with as many elements as are served, to every API: none holds the event loop, or takes much memory.

Those that brokers send are in tests/cluster/test_hostile_brokers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from struct import pack

import pytest
from tests.badinput.hostile import Attack, attacks
from tests.badinput.hostile_check import SHARE, check, measure, name_of
from tests.badinput.requests import crowded_batch, now_ms, produce, records
from tests.badinput.test_groups import join_request, ready
from tests.support.topics import create_topic
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, request_bytes

from ottla_broker.handlers import SERVED
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.join_group import JoinGroupRequestProtocol
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.schema import Message

pytestmark = pytest.mark.ottla_only

ATTACKS = [each for key, served in SERVED.items() for each in attacks(key, served.max_version)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    broker = WatchedBroker(folder / "data", {"group.initial.rebalance.delay.ms": 0}).start()
    yield broker
    broker.stop()


@pytest.mark.parametrize("attack", ATTACKS, ids=name_of)
def test_no_request_holds_the_loop(watched: WatchedBroker, attack: Attack) -> None:
    check(watched, attack)


@pytest.mark.parametrize("codec", [0, 1])
def test_thousands_of_valid_batches_do_not_hold_the_loop(watched: WatchedBroker, codec: int) -> None:
    topic = f"wide-{codec}"
    create_topic(watched, topic)
    batch = bytes(records(b"v", codec=codec))
    for count in (3, 6_000):
        parts = [PartitionProduceData(index=0, records=batch) for _ in range(count)]
        request = ProduceRequest(
            acks=-1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=parts)]
        )
        assert measure(watched, f"produce of {count} batches", request_bytes(request, 9)[4:])


@pytest.mark.parametrize("by_time", [False, True])
def test_looking_into_a_batch_of_very_many_records_does_not_hold_the_loop(
    watched: WatchedBroker, by_time: bool
) -> None:
    """Some kilobytes that decompress to hundreds of thousands of records; the last one is looked for."""
    topic, now = f"crowded-{by_time}", now_ms()
    create_topic(watched, topic)
    batch = crowded_batch(300_000, now)
    assert len(batch) < 300_000
    with Wire(watched.port) as wire:
        assert produce(wire, topic, batch) == (0, 0)
    asked = ListOffsetsPartition(partition_index=0, timestamp=now + 1 if by_time else -3)
    request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[asked])])
    assert measure(watched, f"offset in a crowded batch, {by_time=}", request_bytes(request, 8)[4:])
    with Wire(watched.port) as wire:
        assert wire.call(request, 8).topics[0].partitions[0].offset == 299_999


def test_a_subscription_of_very_many_topics_does_not_hold_the_loop(watched: WatchedBroker) -> None:
    """What consumers of a classic group state is theirs, but the broker looks there for the topics that they read."""
    many = 1_000_000
    protocol = JoinGroupRequestProtocol(
        name="range", metadata=pack(">hi", 1, many) + bytes(2 * many) + pack(">i", -1)
    )
    with Wire(watched.port) as wire:
        ready(wire, "wide")
    request = join_request("wide", group_instance_id="one", protocols=[protocol])
    assert measure(watched, f"join with {many} topics", request_bytes(request, 5)[4:], made=2 * many)


def test_many_partitions_do_not_hold_the_loop(watched: WatchedBroker) -> None:
    count = 10_000 * SHARE // 100
    create_topic(watched, "few")
    many = CreateTopicsRequest(
        topics=[CreatableTopic(name="many", num_partitions=count, replication_factor=1)], timeout_ms=60_000
    )
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="many")], timeout_ms=60_000)
    assert measure(watched, f"creation of {count} partitions", request_bytes(many, 7)[4:], made=count * 4_000)
    assert measure(watched, f"deletion of {count} partitions", request_bytes(gone, 6)[4:])


def _first_requests(topic: str, count: int) -> dict[str, tuple[Message, int]]:
    """Requests of each API that opens the logs of the partitions that it names, with their versions."""
    indexes = range(count)
    batch = bytes(records(b"v"))
    produced = [PartitionProduceData(index=index, records=batch) for index in indexes]
    fetched = [FetchPartition(partition=index, fetch_offset=0) for index in indexes]
    listed = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in indexes]
    ended = [OffsetForLeaderPartition(partition=index, leader_epoch=0) for index in indexes]
    deleted = [DeleteRecordsPartition(partition_index=index, offset=0) for index in indexes]
    return {
        "produce": (
            ProduceRequest(
                acks=1, timeout_ms=60_000, topic_data=[TopicProduceData(name=topic, partition_data=produced)]
            ),
            9,
        ),
        "fetch": (
            FetchRequest(max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic=topic, partitions=fetched)]),
            12,
        ),
        "offsets": (
            ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=listed)]),
            6,
        ),
        "epochs": (
            OffsetForLeaderEpochRequest(
                replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=ended)]
            ),
            4,
        ),
        "deletion": (
            DeleteRecordsRequest(
                timeout_ms=60_000, topics=[DeleteRecordsTopic(name=topic, partitions=deleted)]
            ),
            2,
        ),
        "producers": (
            DescribeProducersRequest(topics=[TopicRequest(name=topic, partition_indexes=list(indexes))]),
            0,
        ),
    }


@pytest.mark.parametrize("api", _first_requests("", 0))
def test_opening_the_logs_of_many_partitions_does_not_hold_the_loop(watched: WatchedBroker, api: str) -> None:
    # Not by create_topic, which asks for offsets, and so opens the logs.
    wanted = CreatableTopic(name=f"closed-{api}", num_partitions=200, replication_factor=1)
    with Wire(watched.port) as wire:
        answer = wire.call(CreateTopicsRequest(topics=[wanted], timeout_ms=60_000), 7)
    assert not answer.topics[0].error_code
    for count in (2, 200):
        request, version = _first_requests(wanted.name, count)[api]
        assert measure(watched, f"first {api} of {count} partitions", request_bytes(request, version)[4:])
