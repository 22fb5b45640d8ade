"""Requests with as many elements as are served, to every API: none holds the event loop, or takes much memory.

Those that brokers send are in tests/cluster/test_hostile_brokers.py.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.badinput.hostile import Attack, attacks
from tests.badinput.hostile_check import SHARE, check, measure, name_of
from tests.badinput.requests import records
from tests.support.topics import create_topic
from tests.support.watched import WatchedBroker
from tests.support.wire import request_bytes

from ottla_broker.handlers import SERVED
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData

pytestmark = pytest.mark.ottla_only

ATTACKS = [each for key, served in SERVED.items() for each in attacks(key, served.max_version)]


@pytest.fixture(scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[WatchedBroker]:
    folder: Path = tmp_path_factory.mktemp("hostile")
    broker = WatchedBroker(folder / "data").start()
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
        measure(watched, f"produce of {count} batches", request_bytes(request, 9)[4:])


def test_many_partitions_do_not_hold_the_loop(watched: WatchedBroker) -> None:
    count = 10_000 * SHARE // 100
    create_topic(watched, "few")
    many = CreateTopicsRequest(
        topics=[CreatableTopic(name="many", num_partitions=count, replication_factor=1)], timeout_ms=60_000
    )
    gone = DeleteTopicsRequest(topics=[DeleteTopicState(name="many")], timeout_ms=60_000)
    measure(watched, f"creation of {count} partitions", request_bytes(many, 7)[4:], made=count * 4_000)
    measure(watched, f"deletion of {count} partitions", request_bytes(gone, 6)[4:])


def test_the_first_fetch_of_many_partitions_does_not_hold_the_loop(watched: WatchedBroker) -> None:
    create_topic(watched, "unread", partitions=300)
    for count in (2, 300):
        wanted = [FetchPartition(partition=index, fetch_offset=0) for index in range(count)]
        request = FetchRequest(
            max_wait_ms=0, min_bytes=0, topics=[FetchTopic(topic="unread", partitions=wanted)]
        )
        # Each log is opened now.
        measure(watched, f"fetch of {count} partitions", request_bytes(request, 12)[4:])


def test_the_first_look_at_many_offsets_does_not_hold_the_loop(watched: WatchedBroker) -> None:
    create_topic(watched, "unknown", partitions=300)
    for count in (2, 300):
        asked = [ListOffsetsPartition(partition_index=index, timestamp=-1) for index in range(count)]
        request = ListOffsetsRequest(
            replica_id=-1, topics=[ListOffsetsTopic(name="unknown", partitions=asked)]
        )
        measure(watched, f"offsets of {count} partitions", request_bytes(request, 6)[4:])
