"""Brokers that move, refuse, disconnect, don't answer, or are old; and callers that are cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest
from tests.client.base.fake import FakeBroker, Partition
from tests.client.base.fake import Topic as FakeTopic

from ottla_client import Admin, TopicPartition
from ottla_client.admin import MemberToRemove, NewTopic, OffsetSpec, PartialError
from ottla_client.errors import (
    BootstrapError,
    BrokerError,
    GroupError,
    RequestTimeoutError,
    UnknownTopicError,
    UnsupportedApiError,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_group_describe import (
    Assignment,
    ConsumerGroupDescribeResponse,
    Member,
    TopicPartitions,
)
from ottla_protocol.messages.consumer_group_describe import DescribedGroup as AssignedGroup
from ottla_protocol.messages.create_topics import CreatableTopicResult, CreateTopicsResponse
from ottla_protocol.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from ottla_protocol.messages.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from ottla_protocol.messages.describe_groups import DescribedGroup, DescribeGroupsResponse
from ottla_protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from ottla_protocol.messages.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)


def creating(*codes: int) -> Callable[..., CreateTopicsResponse]:
    """Answers CreateTopics with these codes in turn, then always with the last one."""
    left = list(codes)

    def answer(header: Any, request: Any) -> CreateTopicsResponse:
        code = left.pop(0) if len(left) > 1 else left[0]
        return CreateTopicsResponse(
            topics=[CreatableTopicResult(name=topic.name, error_code=code) for topic in request.topics]
        )

    return answer


async def test_a_moved_controller_is_found(fake: FakeBroker, fake_admin: Admin) -> None:
    async with FakeBroker() as second:
        second.versions = fake.versions
        second.answers[ApiKey.CREATE_TOPICS] = creating(0)

        def moved(header: Any, request: Any) -> Any:
            fake.controller = 2
            return creating(ErrorCode.NOT_CONTROLLER)(header, request)

        fake.answers[ApiKey.CREATE_TOPICS] = moved
        fake.nodes[2] = (second.host, second.port)
        await fake_admin.create_topics([NewTopic("t")])
        assert (fake.asked[ApiKey.CREATE_TOPICS], second.asked[ApiKey.CREATE_TOPICS]) == (1, 1)
        await fake_admin.close()


async def test_without_a_controller_it_waits_until_the_deadline(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.controller = -1
    with pytest.raises(RequestTimeoutError, match="controller"):
        await fake_admin.create_topics([NewTopic("t")], timeout=0.2)
    fake.controller = 1
    fake.answers[ApiKey.CREATE_TOPICS] = creating(0)
    await fake_admin.create_topics([NewTopic("t")])


async def test_throttled_topics_alone_are_asked_for_again(fake: FakeBroker, fake_admin: Admin) -> None:
    asked: list[list[str]] = []

    def answer(header: Any, request: Any) -> CreateTopicsResponse:
        asked.append([topic.name for topic in request.topics])
        throttled = {"b"} if len(asked) == 1 else set()
        return CreateTopicsResponse(
            topics=[
                CreatableTopicResult(
                    name=topic.name,
                    error_code=ErrorCode.THROTTLING_QUOTA_EXCEEDED if topic.name in throttled else 0,
                )
                for topic in request.topics
            ]
        )

    fake.answers[ApiKey.CREATE_TOPICS] = answer
    assert list(await fake_admin.create_topics([NewTopic("a"), NewTopic("b"), NewTopic("c")])) == [
        "a",
        "b",
        "c",
    ]
    assert asked == [["a", "b", "c"], ["b"]]


async def test_a_broken_connection_is_tried_again(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.CREATE_TOPICS] = lambda header, request: (
        fake.cut() if fake.asked[ApiKey.CREATE_TOPICS] < 3 else creating(0)(header, request)
    )
    await fake_admin.create_topics([NewTopic("t")])
    assert fake.asked[ApiKey.CREATE_TOPICS] == 3


async def test_silence_ends_at_the_deadline(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.CREATE_TOPICS] = lambda header, request: None
    with pytest.raises(RequestTimeoutError):
        await fake_admin.create_topics([NewTopic("t")], timeout=0.1)


async def test_an_answer_that_leaves_something_out(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.CREATE_TOPICS] = lambda header, request: CreateTopicsResponse()
    with pytest.raises(BrokerError, match="leaves out"):
        await fake_admin.create_topics([NewTopic("t")])


async def test_a_code_from_the_future(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.CREATE_TOPICS] = creating(999)
    with pytest.raises(BrokerError, match="topic t: error code 999") as caught:
        await fake_admin.create_topics([NewTopic("t")])
    assert caught.value.code is ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_moved_coordinator_is_found(fake: FakeBroker, fake_admin: Admin) -> None:
    codes = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.NON_EMPTY_GROUP]

    def answer(header: Any, request: Any) -> DeleteGroupsResponse:
        code = codes.pop(0)
        return DeleteGroupsResponse(
            results=[DeletableGroupResult(group_id=name, error_code=code) for name in request.groups_names]
        )

    fake.answers[ApiKey.DELETE_GROUPS] = answer
    with pytest.raises(GroupError, match="has members"):
        await fake_admin.delete_groups(["g"])
    assert fake.asked[ApiKey.DELETE_GROUPS] == 3
    assert fake.asked[ApiKey.FIND_COORDINATOR] == 2


async def test_a_leader_that_moves_and_a_topic_that_is_young(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.topics["t"] = FakeTopic(partitions={0: Partition()})
    codes = [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]

    def answer(header: Any, request: Any) -> ListOffsetsResponse:
        assert request.replica_id == -1
        result = ListOffsetsPartitionResponse(partition_index=0, error_code=codes.pop(0), offset=5)
        return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[result])])

    fake.answers[ApiKey.LIST_OFFSETS] = answer
    partition = TopicPartition("t", 0)
    assert (await fake_admin.list_offsets({partition: OffsetSpec.LATEST}))[partition].offset == 5
    assert not codes


async def test_an_unknown_topic_is_not_waited_for_long(fake: FakeBroker, fake_admin: Admin) -> None:
    with pytest.raises(UnknownTopicError):
        await fake_admin.list_offsets({TopicPartition("t", 0): OffsetSpec.LATEST}, timeout=60)


async def test_a_partition_without_leader(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.topics["t"] = FakeTopic(partitions={0: Partition(leader=-1, error=ErrorCode.LEADER_NOT_AVAILABLE)})
    with pytest.raises(RequestTimeoutError, match="no leader"):
        await fake_admin.list_offsets({TopicPartition("t", 0): OffsetSpec.LATEST}, timeout=0.2)


async def test_a_broker_that_can_not_list_its_groups(fake: FakeBroker, fake_admin: Admin) -> None:
    async with FakeBroker() as second:
        second.versions = fake.versions
        second.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse(error_code=31)
        listed = ListedGroup(group_id="g", protocol_type="consumer", group_state="Stable")
        fake.answers[ApiKey.LIST_GROUPS] = lambda header, request: ListGroupsResponse(groups=[listed])
        fake.nodes[2] = (second.host, second.port)
        with pytest.raises(PartialError, match="broker 2") as caught:
            await fake_admin.list_groups()
        assert caught.value.results[1][0].group_id == "g"
        await fake_admin.close()


async def test_old_brokers(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.versions[ApiKey.LIST_OFFSETS] = (0, 6)
    fake.versions[ApiKey.LIST_GROUPS] = (0, 3)
    fake.versions[ApiKey.LEAVE_GROUP] = (0, 2)
    fake.versions[ApiKey.DELETE_TOPICS] = (0, 5)
    fake.versions.pop(ApiKey.INCREMENTAL_ALTER_CONFIGS)
    fake.topics["t"] = FakeTopic(partitions={0: Partition()})
    async with Admin(fake.bootstrap, default_api_timeout_ms=2_000) as admin:
        with pytest.raises(UnsupportedApiError, match=r"Kafka 3\.0"):
            await admin.list_offsets({TopicPartition("t", 0): OffsetSpec.MAX_TIMESTAMP})
        with pytest.raises(UnsupportedApiError, match=r"Kafka 2\.6"):
            await admin.list_groups(states=["Empty"])
        with pytest.raises(UnsupportedApiError, match=r"Kafka 2\.4"):
            await admin.remove_members("g", [MemberToRemove("m")])
        with pytest.raises(UnsupportedApiError):
            await admin.describe_producers([TopicPartition("t", 0)])
        deleted = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
        fake.answers[ApiKey.DELETE_TOPICS] = lambda header, request: deleted
        await admin.delete_topics(["t"])
        assert fake.requests[-1].topic_names == ["t"]


async def test_no_broker(unused_tcp_port: int) -> None:
    admin = Admin(f"127.0.0.1:{unused_tcp_port}")
    with pytest.raises(BootstrapError):
        await admin.start(0.3)
    await admin.close()


@pytest.mark.parametrize("wait", range(12))
async def test_cancelled_anywhere_it_leaves_nothing_behind(fake: FakeBroker, wait: int) -> None:
    fake.topics["t"] = FakeTopic(partitions={0: Partition()})
    fake.answers[ApiKey.LIST_OFFSETS] = lambda header, request: None
    before = asyncio.all_tasks()

    async def work() -> None:
        async with Admin(fake.bootstrap) as admin, asyncio.TaskGroup() as group:
            for number in range(2):
                group.create_task(admin.list_offsets({TopicPartition("t", number): OffsetSpec.LATEST}))

    task = asyncio.create_task(work())
    for _ in range(wait**2):
        await asyncio.sleep(0)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    await asyncio.sleep(0)
    left = [t for t in asyncio.all_tasks() - before if "Listener" not in repr(t.get_coro())]
    assert not left


async def test_the_error_names_a_lost_connection(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.answers[ApiKey.CREATE_TOPICS] = lambda header, request: fake.cut()
    with pytest.raises(RequestTimeoutError, match=r"no time left after \d+ tries"):
        await fake_admin.create_topics([NewTopic("t")], timeout=0.2)


async def test_groups_of_the_newer_kind_may_be_switched_off(fake: FakeBroker, fake_admin: Admin) -> None:
    fake.versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = (0, 0)
    dead = DescribeGroupsResponse(groups=[DescribedGroup(group_id="g", group_state="Dead")])
    refused = AssignedGroup(group_id="g", error_code=ErrorCode.UNSUPPORTED_VERSION)
    fake.answers[ApiKey.DESCRIBE_GROUPS] = lambda header, request: dead
    fake.answers[ApiKey.CONSUMER_GROUP_DESCRIBE] = lambda header, request: ConsumerGroupDescribeResponse(
        groups=[refused]
    )
    async with Admin(fake.bootstrap) as admin:
        with pytest.raises(GroupError, match="does not exist"):
            await admin.describe_groups(["g"])
        member = Member(
            member_id="m",
            assignment=Assignment(topic_partitions=[TopicPartitions(topic_name="t", partitions=[1])]),
        )
        refused.error_code, refused.group_state, refused.members = 0, "Stable", [member]
        group = (await admin.describe_groups(["g"]))["g"]
        assert (group.type, group.members[0].assignment) == ("consumer", {TopicPartition("t", 1)})
