"""Requests with as many elements as are served, to every API: none holds the event loop, or takes much memory.

Those that brokers send are in tests/cluster/test_hostile_brokers.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from struct import pack

import pytest
from tests.badinput.hostile import Attack, attacks
from tests.badinput.hostile_check import LONGEST_HOLD, SHARE, MiB, check, measure, name_of
from tests.badinput.requests import crowded_batch, now_ms, produce, records
from tests.badinput.test_groups import join_request, ready
from tests.support.topics import create_topic
from tests.support.waiting import wait_for
from tests.support.watched import WatchedBroker
from tests.support.wire import Wire, request_bytes

from ottla_broker.handlers import served_apis
from ottla_protocol.messages import share_acknowledge, share_fetch
from ottla_protocol.messages.alter_share_group_offsets import (
    AlterShareGroupOffsetsRequest,
    AlterShareGroupOffsetsRequestPartition,
    AlterShareGroupOffsetsRequestTopic,
)
from ottla_protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from ottla_protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from ottla_protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from ottla_protocol.messages.describe_producers import DescribeProducersRequest, TopicRequest
from ottla_protocol.messages.describe_share_group_offsets import (
    DescribeShareGroupOffsetsRequest,
    DescribeShareGroupOffsetsRequestGroup,
)
from ottla_protocol.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from ottla_protocol.messages.join_group import JoinGroupRequestProtocol
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from ottla_protocol.messages.offset_fetch import OffsetFetchRequest
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from ottla_protocol.messages.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatRequest
from ottla_protocol.schema import Message

pytestmark = pytest.mark.ottla_only

ATTACKS = [
    each
    for key, served in served_apis(in_cluster=False, client_telemetry=True).items()
    for each in attacks(key, served.max_version)
]


_MEMBER = "AAAAAAAAAAAAAAAAAAAAAg"


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


@pytest.fixture
def share(watched: WatchedBroker) -> Iterator[Callable[[str, int], bytes]]:
    """Makes topics that a share group has; returns their ids. Nothing has opened their logs."""
    with Wire(watched.port) as wire:

        def make(name: str, count: int) -> bytes:
            topic = CreatableTopic(name=name, num_partitions=count, replication_factor=1)
            made = wire.call(CreateTopicsRequest(topics=[topic], timeout_ms=60_000), 7).topics[0]
            reset = AlterableConfig(name="share.auto.offset.reset", value="by_duration:PT1H")
            group = AlterConfigsResource(resource_type=32, resource_name=name, configs=[reset])
            wire.call(IncrementalAlterConfigsRequest(resources=[group]), 1)
            find = FindCoordinatorRequest(key=name, key_type=0)
            beat = ShareGroupHeartbeatRequest(group_id=name, member_id=_MEMBER, subscribed_topic_names=[name])
            wait_for(lambda: wire.call(find, 3).error_code == 0, "a coordinator")
            wait_for(lambda: wire.call(beat, 1).error_code == 0, "the group's coordinator to have loaded")
            return bytes(made.topic_id)

        yield make


def _wait_for_group(watched: WatchedBroker, name: str) -> None:
    request = OffsetFetchRequest(group_id=name, topics=[])
    with Wire(watched.port) as wire:
        wait_for(lambda: wire.call(request, 7).error_code == 0, "the group's coordinator to have loaded")


def test_describing_share_groups_of_closed_logs_does_not_hold_the_loop(
    watched: WatchedBroker, share: Callable[[str, int], bytes]
) -> None:
    counts = (2, 500)
    for count in counts:
        name = f"described-{count}"
        share(name, count)
        begun = [
            AlterShareGroupOffsetsRequestPartition(partition_index=index, start_offset=0)
            for index in range(count)
        ]
        topic = AlterShareGroupOffsetsRequestTopic(topic_name=name, partitions=begun)
        with Wire(watched.port) as wire:
            leave = ShareGroupHeartbeatRequest(group_id=name, member_id=_MEMBER, member_epoch=-1)
            assert wire.call(leave, 1).error_code == 0
            answer = wire.call(AlterShareGroupOffsetsRequest(group_id=name, topics=[topic]), 0)
            assert {each.error_code for each in answer.responses[0].partitions} == {0}
    watched.stop()
    watched.start()
    for count in counts:
        name = f"described-{count}"
        _wait_for_group(watched, name)
        group = DescribeShareGroupOffsetsRequestGroup(group_id=name, topics=None)
        asked = DescribeShareGroupOffsetsRequest(groups=[group])
        assert measure(watched, f"share offsets of {count} partitions", request_bytes(asked, 1)[4:])


def test_thousands_of_acquired_ranges_do_not_hold_the_loop(
    watched: WatchedBroker, share: Callable[[str, int], bytes]
) -> None:
    """A member has released every other record, acquires those again, and goes."""
    count, each = 30, 2_000
    name = "scattered"
    topic_id = share(name, count)
    batch = bytes(records(*[b""] * each, timestamp=now_ms()))
    spread = share_fetch.AcknowledgementBatch(
        first_offset=0, last_offset=each - 1, acknowledge_types=[2, 1] * (each // 2)
    )

    def request(epoch: int, *partitions: share_fetch.FetchPartition) -> share_fetch.ShareFetchRequest:
        return share_fetch.ShareFetchRequest(
            group_id=name,
            member_id=_MEMBER,
            share_session_epoch=epoch,
            max_wait_ms=60_000,
            max_bytes=64 * MiB,
            max_records=count * each,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=list(partitions))],
        )

    def acknowledged(epoch: int, index: int) -> share_acknowledge.ShareAcknowledgeRequest:
        place = share_fetch.FetchPartition(partition_index=index, acknowledgement_batches=[spread])
        return share_acknowledge.ShareAcknowledgeRequest(
            group_id=name,
            member_id=_MEMBER,
            share_session_epoch=epoch,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=[place])],
        )

    with Wire(watched.port) as wire:
        for index in range(count):
            assert produce(wire, name, batch, partition=index) == (0, 0)
        places = [share_fetch.FetchPartition(partition_index=index) for index in range(count)]
        epoch, acquired = 0, 0
        while acquired < count * each:
            answer = wire.call(request(epoch, *([] if epoch else places)), 1)
            assert answer.error_code == 0
            acquired += _acquired(answer)
            epoch += 1
        for index in range(count):
            assert wire.call(acknowledged(epoch, index), 1).error_code == 0
            epoch += 1
        held: list[float] = []
        while acquired > count * each // 2:
            watched.watch()
            acquired -= _acquired(wire.call(request(epoch), 1))
            epoch += 1
            held.append(watched.hold())
        watched.watch()
    with Wire(watched.port) as wire:
        beat = ShareGroupHeartbeatRequest(group_id=name, member_id=_MEMBER, member_epoch=-1)
        assert wire.call(beat, 1).error_code == 0
        find = FindCoordinatorRequest(key=name, key_type=0)
        for _ in range(50):
            assert wire.call(find, 3).error_code == 0
    held.append(watched.hold())
    print(f"{acquired} ranges, held {max(held) * 1000:.1f} ms")
    assert max(held) < LONGEST_HOLD


def _acquired(answer: share_fetch.ShareFetchResponse) -> int:
    return sum(
        each.last_offset - each.first_offset + 1
        for topic in answer.responses
        for partition in topic.partitions
        for each in partition.acquired_records
    )


def test_beginning_share_groups_by_time_does_not_hold_the_loop(
    watched: WatchedBroker, share: Callable[[str, int], bytes]
) -> None:
    hours = 2 * 3_600_000
    batch = crowded_batch(300_000, now_ms() - hours, hours)
    for count in (1, 8):
        name = f"begun-{count}"
        topic_id = share(name, count)
        with Wire(watched.port) as wire:
            for partition in range(count):
                assert produce(wire, name, batch, partition=partition) == (0, 0)
        places = [share_fetch.FetchPartition(partition_index=index) for index in range(count)]
        request = share_fetch.ShareFetchRequest(
            group_id=name,
            member_id=_MEMBER,
            max_wait_ms=60_000,
            max_bytes=1,
            max_records=1,
            topics=[share_fetch.FetchTopic(topic_id=topic_id, partitions=places)],
        )
        assert measure(watched, f"begin in {count} crowded batches", request_bytes(request, 1)[4:])
