"""Metadata, DescribeCluster and DescribeTopicPartitions, in all their versions."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

import pytest
from tests.support.handlers import handled
from tests.support.world import World

from ottla_broker.controller.api import ZERO_ID, MorePartitions, NewTopic, TopicToDelete
from ottla_broker.controller.new_topics import new_topic_on_first_use
from ottla_broker.handlers import describe_cluster, describe_topic_partitions, metadata
from ottla_broker.metadata.cache import BrokerInfo
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.describe_cluster import DescribeClusterRequest
from ottla_protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    TopicRequest,
)
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

Open = Callable[..., Awaitable[World]]
VERSIONS = range(13)
NOT_ASKED = -(2**31)


def asking(names: Sequence[str] | None, create: bool = True) -> MetadataRequest:
    topics = None if names is None else [MetadataRequestTopic(name=name) for name in names]
    return MetadataRequest(topics=topics, allow_auto_topic_creation=create)


async def ask(world: World, request: MetadataRequest, version: int) -> MetadataResponse:
    answer: MetadataResponse = await world.call(metadata, request, version)
    return answer


async def make(world: World, *names: str, partitions: int = 2) -> None:
    outcomes = await world.controller.create_topics([NewTopic(n, partitions) for n in names], False)
    assert all(outcome.error is ErrorCode.NONE for outcome in outcomes)


@pytest.mark.parametrize("version", VERSIONS)
async def test_brokers_and_a_topic(open_world: Open, version: int) -> None:
    world = await open_world(broker_rack="r1", broker_id="7")
    await make(world, "t")
    answer = await ask(world, asking(["t"]), version)
    assert [(b.node_id, b.host, b.port) for b in answer.brokers] == [(7, "127.0.0.1", 9092)]
    assert answer.brokers[0].rack == ("r1" if version >= 1 else None)
    assert answer.controller_id == (7 if version >= 1 else -1)
    assert answer.cluster_id == (world.metadata.cluster_id if version >= 2 else None)
    (topic,) = answer.topics
    info = world.metadata.topic("t")
    assert info is not None
    assert (topic.error_code, topic.name, topic.is_internal) == (0, "t", False)
    assert topic.topic_id == (info.topic_id if version >= 10 else ZERO_ID)
    assert topic.topic_authorized_operations == NOT_ASKED
    assert [
        (p.error_code, p.partition_index, p.leader_id, p.leader_epoch, p.replica_nodes, p.isr_nodes)
        for p in topic.partitions
    ] == [(0, i, 7, 0 if version >= 7 else -1, [7], [7]) for i in range(2)]


@pytest.mark.parametrize("version", VERSIONS)
async def test_all_topics_and_none(world: World, version: int) -> None:
    await make(world, "a", "b")
    nothing = await ask(world, asking([]), version)
    everything = await ask(world, asking([] if version == 0 else None), version)
    assert [topic.name for topic in everything.topics] == ["a", "b"]
    assert [topic.name for topic in nothing.topics] == (["a", "b"] if version == 0 else [])


@pytest.mark.parametrize("version", VERSIONS)
async def test_a_missing_topic_is_created(world: World, version: int) -> None:
    answer = await ask(world, asking(["new", "new"]), version)
    (topic,) = answer.topics
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "new", 1)
    assert topic.partitions[0].leader_id == 1001


@pytest.mark.parametrize("version", range(4, 13))
async def test_a_missing_topic_is_not_created_unless_it_may_be(world: World, version: int) -> None:
    answer = await ask(world, asking(["new", "not legal"], create=False), version)
    assert [ErrorCode(topic.error_code).name for topic in answer.topics] == [
        "UNKNOWN_TOPIC_OR_PARTITION",
        "INVALID_TOPIC_EXCEPTION",
    ]
    assert world.metadata.topic("new") is None


async def test_names_that_are_not_legal_never_reach_the_controller(world: World) -> None:
    names = ["not legal", "x" * 32_767, "", ".."]
    answer = handled(metadata, world.context(12, MetadataRequest.API_KEY), asking(names))
    assert isinstance(answer, MetadataResponse)
    assert {topic.error_code for topic in answer.topics} == {ErrorCode.INVALID_TOPIC_EXCEPTION}
    for name in names:
        with pytest.raises(KafkaError) as caught:
            new_topic_on_first_use(world.config, name)
        assert caught.value.code is ErrorCode.INVALID_TOPIC_EXCEPTION


async def test_creation_switched_off(open_world: Open) -> None:
    world = await open_world(auto_create_topics_enable="false")
    answer = await ask(world, asking(["new"]), 1)
    assert answer.topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


async def test_a_topic_that_cannot_be_created_says_why(open_world: Open) -> None:
    world = await open_world(default_replication_factor="2")
    answer = await ask(world, asking(["not legal", "new"]), 12)
    assert [ErrorCode(topic.error_code).name for topic in answer.topics] == [
        "INVALID_TOPIC_EXCEPTION",
        "INVALID_REPLICATION_FACTOR",
    ]


async def test_by_id(world: World) -> None:
    await make(world, "t")
    info = world.metadata.topic("t")
    assert info is not None
    wanted = [
        MetadataRequestTopic(name=None, topic_id=info.topic_id),
        MetadataRequestTopic(name=None, topic_id=b"x" * 16),
        MetadataRequestTopic(name="ignored"),
    ]
    answer = await ask(world, MetadataRequest(topics=wanted), 12)
    assert [(t.error_code, t.name, t.topic_id) for t in answer.topics] == [
        (0, "t", info.topic_id),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, b"x" * 16),
    ]
    assert world.metadata.topic("ignored") is None


@pytest.mark.parametrize("version", [10, 11])
async def test_ids_cannot_be_asked_for_before_version_12(world: World, version: int) -> None:
    await make(world, "t")
    info = world.metadata.topic("t")
    assert info is not None
    wanted = [MetadataRequestTopic(name=None, topic_id=info.topic_id)]
    answer = await ask(world, MetadataRequest(topics=wanted), version)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]


async def test_neither_name_nor_id(world: World) -> None:
    answer = await ask(world, MetadataRequest(topics=[MetadataRequestTopic(name=None)]), 12)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]


@pytest.mark.parametrize("version", range(8, 11))
async def test_authorized_operations(world: World, version: int) -> None:
    await make(world, "t")
    request = MetadataRequest(
        topics=None, include_cluster_authorized_operations=True, include_topic_authorized_operations=True
    )
    answer = await ask(world, request, version)
    assert answer.cluster_authorized_operations == 0b1111110100000
    assert answer.topics[0].topic_authorized_operations == 0b110111111000
    assert (await ask(world, asking(["t"]), version)).topics[0].topic_authorized_operations == NOT_ASKED


async def test_clients_are_told_the_address_of_the_listener_they_came_in_by(open_world: Open) -> None:
    world = await open_world(
        listeners="PLAINTEXT://127.0.0.1:9092,OUTSIDE://127.0.0.1:9093",
        listener_security_protocol_map="PLAINTEXT:PLAINTEXT,OUTSIDE:PLAINTEXT",
        advertised_listeners="OUTSIDE://example.org:19093",
    )
    for listener, host, port in (("PLAINTEXT", "127.0.0.1", 9092), ("OUTSIDE", "example.org", 19093)):
        answer = await world.call(metadata, asking([]), 5, listener)
        assert [(b.host, b.port) for b in answer.brokers] == [(host, port)]
        answer = await world.call(describe_cluster, DescribeClusterRequest(), 0, listener)
        assert [(b.host, b.port) for b in answer.brokers] == [(host, port)]


async def test_what_was_answered_before_follows_changes(world: World) -> None:
    await make(world, "t")
    assert len((await ask(world, asking(["t"]), 12)).topics[0].partitions) == 2
    await world.controller.create_partitions([MorePartitions("t", 3)], False)
    assert len((await ask(world, asking(["t"]), 12)).topics[0].partitions) == 3
    await world.controller.delete_topics([TopicToDelete("t")])
    await make(world, "t", partitions=1)
    topic = (await ask(world, asking(["t"]), 12)).topics[0]
    assert [p.leader_epoch for p in topic.partitions] == [1]


async def test_a_broker_that_has_just_gone_is_named_still(world: World) -> None:
    """So that clients hear who leads instead before they end their connection to it."""
    (own,) = world.metadata.brokers.values()
    gone = BrokerInfo(9, "there", 9092, None, dict.fromkeys(own.listeners, ("there", 9092)))
    world.metadata.departed[9] = gone
    answer = await ask(world, asking([]), 12)
    assert {broker.node_id for broker in answer.brokers} == {own.id, 9}
    back = BrokerInfo(9, "here", 9093, None, dict.fromkeys(own.listeners, ("here", 9093)))
    world.metadata.brokers[9] = back
    answer = await ask(world, asking([]), 12)
    assert {broker.node_id: broker.host for broker in answer.brokers}[9] == "here"


async def test_what_has_happened_is_found_out_before_clients_are_told_of_leaders(world: World) -> None:
    await make(world, "t", partitions=1)
    assert (await ask(world, asking(["t"]), 12)).topics[0].partitions[0].error_code == 0
    leader = next(iter(world.metadata.brokers))
    world.metadata.check_brokers = lambda: world.metadata.set_reachable(leader, False)
    (partition,) = (await ask(world, asking(["t"]), 12)).topics[0].partitions
    assert (partition.error_code, partition.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


async def test_every_api_hides_a_leader_that_does_not_answer(world: World) -> None:
    await make(world, "t", partitions=2)
    (leader,) = world.metadata.brokers
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="t")], response_partition_limit=9)

    async def leaders() -> list[tuple[int, int]]:
        described = await world.call(describe_topic_partitions, request, 0)
        found = [(p.error_code, p.leader_id) for p in described.topics[0].partitions]
        answer = await ask(world, asking(["t"]), 12)
        assert [(p.error_code, p.leader_id) for p in answer.topics[0].partitions] == found
        return found

    hidden = (ErrorCode.LEADER_NOT_AVAILABLE, -1)
    assert await leaders() == [(0, leader), (0, leader)]
    world.metadata.set_doubtful({("t", 1)})
    assert await leaders() == [(0, leader), hidden]
    world.metadata.set_reachable(leader, False)
    assert await leaders() == [hidden, hidden]
    world.metadata.set_reachable(leader, True)
    world.metadata.set_doubtful(frozenset())
    assert await leaders() == [(0, leader), (0, leader)]


async def test_an_internal_topic_is_marked(world: World) -> None:
    await world.controller.ensure_topic("__consumer_offsets")
    answer = await ask(world, asking(None), 9)
    assert [(topic.name, topic.is_internal) for topic in answer.topics] == [("__consumer_offsets", True)]


@pytest.mark.parametrize("version", [0, 1])
async def test_the_cluster(world: World, version: int) -> None:
    answer = await world.call(describe_cluster, DescribeClusterRequest(), version)
    assert (answer.error_code, answer.cluster_id) == (0, world.metadata.cluster_id)
    assert (answer.controller_id, answer.cluster_authorized_operations) == (1001, NOT_ASKED)
    assert [broker.broker_id for broker in answer.brokers] == [1001]
    asked = DescribeClusterRequest(include_cluster_authorized_operations=True)
    answer = await world.call(describe_cluster, asked, version)
    assert answer.cluster_authorized_operations == 0b1111110100000


async def test_controllers_are_not_to_be_found_here(world: World) -> None:
    answer = await world.call(describe_cluster, DescribeClusterRequest(endpoint_type=2), 1)
    assert answer.error_code == ErrorCode.MISMATCHED_ENDPOINT_TYPE
    answer = await world.call(describe_cluster, DescribeClusterRequest(endpoint_type=9), 1)
    assert answer.error_code == ErrorCode.UNSUPPORTED_ENDPOINT_TYPE


async def test_partitions_come_in_pages(world: World) -> None:
    await make(world, "a", "b", partitions=3)
    await make(world, "c", partitions=1)
    seen: list[tuple[str | None, int]] = []
    pages = 0
    cursor: Cursor | None = None
    while True:
        request = DescribeTopicPartitionsRequest(response_partition_limit=2, cursor=cursor)
        answer = await world.call(describe_topic_partitions, request, 0)
        found = [(topic.name, p.partition_index) for topic in answer.topics for p in topic.partitions]
        assert 0 < len(found) <= 2
        seen += found
        pages += 1
        if answer.next_cursor is None:
            break
        cursor = Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    assert seen == [(name, i) for name in "ab" for i in range(3)] + [("c", 0)]
    assert pages == 4


async def test_partitions_of_some_topics(open_world: Open) -> None:
    world = await open_world(max_request_partition_size_limit="3")
    await make(world, "a", "b")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name=n) for n in ("b", "no", "n o")])
    answer = await world.call(describe_topic_partitions, request, 0)
    assert [(t.name, ErrorCode(t.error_code).name, len(t.partitions)) for t in answer.topics] == [
        ("b", "NONE", 2),
        ("n o", "INVALID_TOPIC_EXCEPTION", 0),
        ("no", "UNKNOWN_TOPIC_OR_PARTITION", 0),
    ]
    assert answer.topics[0].topic_authorized_operations == 0b110111111000
    assert answer.topics[0].partitions[1].eligible_leader_replicas == []
    answer = await world.call(describe_topic_partitions, DescribeTopicPartitionsRequest(), 0)
    assert sum(len(topic.partitions) for topic in answer.topics) == 3
    assert answer.next_cursor.topic_name == "b"
    assert answer.next_cursor.partition_index == 1


@pytest.mark.parametrize("cursor", [Cursor(topic_name="a"), Cursor(topic_name="b", partition_index=-1)])
async def test_a_cursor_that_makes_no_sense(world: World, cursor: Cursor) -> None:
    await make(world, "a", "b")
    request = DescribeTopicPartitionsRequest(topics=[TopicRequest(name="b")], cursor=cursor)
    answer = await world.call(describe_topic_partitions, request, 0)
    assert [topic.error_code for topic in answer.topics] == [ErrorCode.INVALID_REQUEST]
