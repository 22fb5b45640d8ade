"""Admin's calls for groups, their members, offsets and lag."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import confluent_kafka as ck
import pytest
from tests.client.admin.records import put
from tests.client.admin.waiting import eventually
from tests.clients.members import ConfluentMember, shared_out
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for

from ottla_client import Admin, OffsetAndMetadata, TopicPartition
from ottla_client.admin import MemberToRemove, PartialError
from ottla_client.errors import GroupError, UnknownTopicError
from ottla_protocol.errors import ErrorCode

Name = Callable[..., str]
Topic = Callable[..., str]


@pytest.fixture
def joined(broker: BrokerProcess) -> Iterator[Callable[..., ConfluentMember]]:
    """Starts members of groups and waits until they have their partitions."""
    members = []

    def make(group: str, topic: str, partitions: int, **options: object) -> ConfluentMember:
        member = ConfluentMember(broker.bootstrap, group, [topic], **options)
        members.append(member)
        shared_out([member], topic, partitions)
        return member

    yield make
    for member in members:
        member.leave()


async def test_offsets_make_a_group_and_are_its_end(admin: Admin, new_topic: Topic, new_name: Name) -> None:
    name, topic = new_name("group"), new_topic(3)
    first, second = TopicPartition(topic, 0), TopicPartition(topic, 1)
    assert await admin.list_group_offsets(name) == {}
    await admin.alter_group_offsets(name, {first: 7, second: OffsetAndMetadata(9, "note")})
    offsets = await admin.list_group_offsets(name)
    assert offsets[first].offset == 7
    assert (offsets[second].offset, offsets[second].metadata) == (9, "note")
    assert list(await admin.list_group_offsets(name, [second], require_stable=True)) == [second]
    group = (await admin.describe_groups([name]))[name]
    assert (group.state, group.members) == ("Empty", ())
    assert (await admin.list_groups())[name].state == "Empty"
    assert name in await admin.list_groups(states=["Empty"])
    assert name not in await admin.list_groups(states=["Stable"])
    await admin.delete_group_offsets(name, [first])
    assert list(await admin.list_group_offsets(name)) == [second]
    await admin.delete_groups([name])
    for call in (admin.describe_groups, admin.delete_groups):
        with pytest.raises(GroupError, match=name) as caught:
            await call([name])
        assert caught.value.code is ErrorCode.GROUP_ID_NOT_FOUND


async def test_of_several_groups_one_is_missing(admin: Admin, new_topic: Topic, new_name: Name) -> None:
    name = new_name("group")
    await admin.alter_group_offsets(name, {TopicPartition(new_topic(), 0): 0})
    with pytest.raises(PartialError) as caught:
        await admin.describe_groups([name, name + "-not"])
    assert list(caught.value.results) == [name]
    assert list(caught.value.errors) == [name + "-not"]


async def test_offsets_of_unknown_topics_are_refused(admin: Admin, new_topic: Topic, new_name: Name) -> None:
    name, topic = new_name("group"), new_topic()
    known, unknown = TopicPartition(topic, 0), TopicPartition(topic + "-not", 0)
    with pytest.raises(PartialError) as caught:
        await admin.alter_group_offsets(name, {known: 1, unknown: 1})
    assert isinstance(caught.value.errors[unknown], UnknownTopicError)
    assert list(await admin.list_group_offsets(name)) == [known]


async def test_members_are_described_and_removed(
    admin: Admin, new_topic: Topic, new_name: Name, joined: Callable[..., ConfluentMember]
) -> None:
    name, topic = new_name("group"), new_topic(2)
    joined(name, topic, 2, **{"client.id": "reader"})
    group = (await admin.describe_groups([name]))[name]
    assert (group.state, group.protocol_type, group.protocol) == ("Stable", "consumer", "range")
    (member,) = group.members
    assert member.client_id == "reader"
    assert member.host == "127.0.0.1"
    assert member.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert member.subscription == (topic,)
    with pytest.raises(GroupError) as caught:
        await admin.delete_groups([name])
    assert caught.value.code is ErrorCode.NON_EMPTY_GROUP
    with pytest.raises(GroupError, match="only the group") as caught:
        await admin.alter_group_offsets(name, {TopicPartition(topic, 0): 1})
    assert caught.value.code is ErrorCode.UNKNOWN_MEMBER_ID
    with pytest.raises(GroupError, match="subscribed to the topic"):
        await admin.delete_group_offsets(name, [TopicPartition(topic, 0)])
    with pytest.raises(GroupError, match="absent"):
        await admin.remove_members(name, [MemberToRemove("absent")])
    with pytest.raises(PartialError) as partial:
        await admin.remove_members(name, [MemberToRemove("absent"), MemberToRemove(member.member_id)])
    assert list(partial.value.results) == [MemberToRemove(member.member_id)]


async def test_a_static_member_is_removed_by_its_instance(
    admin: Admin, new_topic: Topic, new_name: Name, joined: Callable[..., ConfluentMember]
) -> None:
    name, topic = new_name("group"), new_topic()
    member = joined(name, topic, 1, instance_id="desk-1")
    assert (await admin.describe_groups([name]))[name].members[0].instance_id == "desk-1"
    member.leave()
    assert (await admin.describe_groups([name]))[name].members, "a static member stays until its session ends"
    await admin.remove_members(name, [MemberToRemove(instance_id="desk-1")])
    assert not (await admin.describe_groups([name]))[name].members
    await admin.remove_members(name)


async def test_lag_in_records_and_seconds(
    admin: Admin, broker: BrokerProcess, new_topic: Topic, new_name: Name
) -> None:
    name, topic = new_name("group"), new_topic(5)
    behind, level, nothing, cut, other = (TopicPartition(topic, number) for number in range(5))
    now = int(time.time() * 1000)
    put(broker, topic, 0, now - 300_000, now - 200_000, now - 100_000)
    put(broker, topic, 1, now)
    put(broker, topic, 3, now - 300_000, now - 50_000)
    await admin.delete_records({cut: 1})
    await admin.alter_group_offsets(name, {behind: 1, level: 1, cut: 0, other: 3})
    lag = await admin.group_lag(name, [nothing])
    assert list(lag) == [behind, level, nothing, cut, other]
    assert lag[behind].records == 2
    assert 200 <= (lag[behind].seconds or 0) < 260
    assert (lag[level].records, lag[level].seconds) == (0, 0.0)
    assert (lag[nothing].committed, lag[nothing].records, lag[nothing].seconds) == (None, None, None)
    assert (lag[cut].start, lag[cut].records) == (1, 1), "what was removed can never be read"
    assert 50 <= (lag[cut].seconds or 0) < 110
    assert (lag[other].records, lag[other].beyond_end) == (0, 3), "the log has lost records"


async def test_lag_where_the_topic_is_gone(admin: Admin, new_topic: Topic, new_name: Name) -> None:
    name, topic = new_name("group"), new_topic()
    await admin.alter_group_offsets(name, {TopicPartition(topic, 0): 1})
    await admin.delete_topics([topic])
    await eventually(admin.list_topics, lambda topics: topic not in topics)
    for lag in (await admin.group_lag(name)).values():
        assert (lag.end, lag.records, lag.seconds) == (None, None, None)


async def test_a_group_that_the_broker_assigns(
    admin: Admin,
    new_topic: Topic,
    new_name: Name,
    broker: BrokerProcess,
    pytestconfig: pytest.Config,
) -> None:
    """KIP-848."""
    if pytestconfig.getoption("--kafka") == "3":
        pytest.skip("Kafka 3.9.1 has such groups only where they are configured")
    name, topic = new_name("group"), new_topic(2)
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": name, "group.protocol": "consumer"}
    )
    consumer.subscribe([topic])
    try:
        wait_for(lambda: consumer.poll(0.05) or len(consumer.assignment()) == 2, "its partitions")
        group = (await admin.describe_groups([name]))[name]
    finally:
        consumer.close()
    assert (group.type, group.protocol, group.state) == ("consumer", "uniform", "Stable")
    (member,) = group.members
    assert member.assignment == {TopicPartition(topic, 0), TopicPartition(topic, 1)}
    assert member.subscription == (topic,)
    assert (await admin.list_groups())[name].type.lower() == "consumer"
