"""Groups of members on a real broker: joins, leaves, faults, and the callbacks of each member."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING

import pytest
from tests.client.group.conftest import NewMember, Notes, TestMember, partitions, shared_out
from tests.support.topics import create_topic
from tests.support.waiting import until
from tests.support.wire import Wire

from ottla_client.connection import Connection
from ottla_client.deadline import Deadline
from ottla_client.errors import (
    CommitFailedError,
    ConnectError,
    FencedInstanceError,
    GroupError,
    PollIntervalExceededError,
)
from ottla_client.group import MemberState
from ottla_client.types import OffsetAndMetadata, TopicPartition
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

    NewTopic = Callable[..., str]
    NewName = Callable[..., str]

STRATEGIES = [
    ["range", "cooperative-sticky"],
    ["range"],
    ["roundrobin"],
    ["sticky"],
    ["cooperative-sticky"],
]
each_strategy = pytest.mark.parametrize("strategies", STRATEGIES, ids="+".join)
SHORT = {"session_timeout_ms": 1_000}


def cut_off(member: TestMember) -> Callable[[], None]:
    """Let nothing of the member's come to its coordinator; returns what undoes that."""
    usual = member.cluster.dedicated

    async def refuse(node_id: int, deadline: Deadline) -> Connection:
        raise ConnectError("cut off by the test")

    member.cluster.dedicated = refuse  # type: ignore[method-assign]

    def undo() -> None:
        member.cluster.dedicated = usual  # type: ignore[method-assign]

    return undo


@each_strategy
async def test_members_come_and_go(
    broker: BrokerProcess,
    new_topic: NewTopic,
    new_name: NewName,
    new_member: NewMember,
    strategies: list[str],
) -> None:
    one, two, group = new_topic(4), new_topic(3), new_name("group")
    everything = partitions(one, 4) | partitions(two, 3)
    members = []
    for _ in range(3):
        member = await new_member(broker.bootstrap, group, [one, two], strategies, **SHORT)
        members.append(member)
        await shared_out(members, everything)
        assert all(member.assignment for member in members)
    await members.pop(0).leave()
    await shared_out(members, everything)
    await members.pop().vanish()
    await shared_out(members, everything)
    assert all(member.notes.held == member.assignment for member in members)


async def test_members_that_come_all_at_once(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(12), new_name("group")
    members = [await new_member(broker.bootstrap, group, [topic], ["cooperative-sticky"]) for _ in range(6)]
    await shared_out(members, partitions(topic, 12))
    assert {len(member.assignment) for member in members} == {2}
    await asyncio.gather(*(member.leave() for member in members[:4]))
    await shared_out(members[4:], partitions(topic, 12))


async def test_cooperative_members_keep_what_they_need_not_give(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(6), new_name("group")
    first = await new_member(broker.bootstrap, group, [topic], ["cooperative-sticky"])
    await shared_out([first], partitions(topic, 6))
    second = await new_member(broker.bootstrap, group, [topic], ["cooperative-sticky"])
    await shared_out([first, second], partitions(topic, 6))
    revoked = [given for what, given in first.notes.events if what == "revoked"]
    assert revoked == [second.assignment]
    assert sum(len(given) for what, given in first.notes.events if what == "assigned") == 6
    assert "lost" not in first.notes.names()


async def test_a_group_goes_from_eager_to_cooperative_member_by_member(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(6), new_name("group")
    everything = partitions(topic, 6)
    eager, both, cooperative = ["range"], ["range", "cooperative-sticky"], ["cooperative-sticky"]
    members = [await new_member(broker.bootstrap, group, [topic], eager) for _ in range(3)]
    await shared_out(members, everything)
    for strategies in (both, cooperative):
        for place in range(3):
            await members[place].leave()
            members[place] = await new_member(broker.bootstrap, group, [topic], strategies)
            await shared_out(members, everything)
    for member in members:
        member.notes.events.clear()
    members.append(await new_member(broker.bootstrap, group, [topic], cooperative))
    await shared_out(members, everything)
    assert all(len(given) <= 1 for what, given in members[0].notes.events if what == "revoked")


async def test_the_leader_takes_up_new_partitions_and_topics(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, later, group = new_topic(2), new_name("later"), new_name("group")
    members = [
        await new_member(broker.bootstrap, group, [topic, later], ["cooperative-sticky"]) for _ in range(2)
    ]
    await shared_out(members, partitions(topic, 2))
    more = CreatePartitionsTopic(name=topic, count=5, assignments=None)
    with Wire(broker.port) as wire:
        answer = wire.call(CreatePartitionsRequest(topics=[more], timeout_ms=10_000), 1)
        assert answer.results[0].error_code == 0
    await shared_out(members, partitions(topic, 5))
    create_topic(broker, later, 3)
    await shared_out(members, partitions(topic, 5) | partitions(later, 3))


@pytest.mark.parametrize("strategies", [["range"], ["cooperative-sticky"]], ids="+".join)
async def test_a_subscription_that_changes(
    broker: BrokerProcess,
    new_topic: NewTopic,
    new_name: NewName,
    new_member: NewMember,
    strategies: list[str],
) -> None:
    one, two, group = new_topic(2), new_topic(2), new_name("group")
    member = await new_member(broker.bootstrap, group, [one], strategies)
    other = await new_member(broker.bootstrap, group, [two], strategies)
    await until(lambda: member.assignment == partitions(one, 2) and other.assignment == partitions(two, 2))
    member.subscribe([two])
    await until(lambda: member.assignment and member.assignment < partitions(two, 2))
    await shared_out([member, other], partitions(two, 2))
    member.subscribe([])
    await shared_out([other], partitions(two, 2))
    assert member.assignment == frozenset()
    member.subscribe([one, two])
    await shared_out([member, other], partitions(one, 2) | partitions(two, 2))


async def test_a_static_member_is_back_without_a_rebalance(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(4), new_name("group")
    members = [
        await new_member(broker.bootstrap, group, [topic], group_instance_id=f"i{n}") for n in range(2)
    ]
    await shared_out(members, partitions(topic, 4))
    for place in range(2):
        had = members[place].assignment
        generation = members[1 - place].group_metadata
        await members[place].leave()
        members[place] = await new_member(broker.bootstrap, group, [topic], group_instance_id=f"i{place}")
        await shared_out(members, partitions(topic, 4))
        assert members[place].assignment == had
        assert members[1 - place].group_metadata == generation


async def test_an_instance_id_in_use_fences_the_older_member(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(2), new_name("group")
    first = await new_member(broker.bootstrap, group, [topic], group_instance_id="one")
    await shared_out([first], partitions(topic, 2))
    second = await new_member(broker.bootstrap, group, [topic], group_instance_id="one")
    await until(lambda: first.failure is not None and not first.assignment)
    with pytest.raises(FencedInstanceError, match="'one'"):
        first.polled()
    assert first.notes.names() == ["assigned", "lost"]
    await shared_out([second], partitions(topic, 2))


async def test_the_next_owner_begins_where_the_last_one_committed(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(4), new_name("group")
    read: dict[TopicPartition, int] = {}

    def reader() -> tuple[Notes, list[TestMember]]:
        notes, me = Notes(), list[TestMember]()

        async def during(what: str, changed: frozenset[TopicPartition]) -> None:
            if what == "assigned":
                begin = await me[0].committed(changed, Deadline(30))
                for partition in changed:
                    at = begin[partition].offset if partition in begin else 0
                    assert at == read.get(partition, 0)
                    read[partition] = at + 10
            elif what == "revoked":
                done = {partition: OffsetAndMetadata(read[partition]) for partition in changed}
                await me[0].commit(done, Deadline(30))

        notes.during = during
        return notes, me

    members: list[TestMember] = []
    for strategies in (["range"], ["range", "cooperative-sticky"], ["range"]):
        notes, me = reader()
        me.append(await new_member(broker.bootstrap, group, None, strategies, notes=notes))
        me[0].subscribe([topic])
        members.append(me[0])
        await shared_out(members, partitions(topic, 4))
    for _ in range(2):
        await members.pop(0).leave()
        await shared_out(members, partitions(topic, 4))
    assert all(member.failure is None for member in members)
    assert sum(read.values()) >= 40


async def test_the_coordinator_dies_and_comes_back(
    own_broker: Callable[..., BrokerProcess], new_name: NewName, new_member: NewMember
) -> None:
    broker = own_broker()
    create_topic(broker, "t", 4)
    members = [await new_member(broker.bootstrap, "g", ["t"]) for _ in range(2)]
    await shared_out(members, partitions("t", 4))
    for _ in range(2):
        broker.kill()
        await asyncio.sleep(0.2)
        with pytest.raises((TimeoutError, ConnectError)):
            await members[0].commit({next(iter(members[0].assignment)): OffsetAndMetadata(1)}, Deadline(0.2))
        broker.start()
        await shared_out(members, partitions("t", 4))
        # Once they can commit, they are members of the new coordinator's group too.
        for member in members:
            await _commit_in_the_end(member)
    await shared_out(members, partitions("t", 4))


async def _commit_in_the_end(member: TestMember) -> None:
    async def committed() -> bool:
        try:
            await member.commit({next(iter(member.assignment)): OffsetAndMetadata(1)}, Deadline(30))
        except (GroupError, StopIteration):
            return False
        return True

    async with asyncio.timeout(60):
        while not await committed():
            await asyncio.sleep(0.02)


async def test_a_member_that_is_cut_off_loses_its_partitions_when_it_is_back(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(4), new_name("group")
    members = [await new_member(broker.bootstrap, group, [topic], ["range"], **SHORT) for _ in range(2)]
    await shared_out(members, partitions(topic, 4))
    had = members[0].assignment
    back = cut_off(members[0])
    await shared_out(members[1:], partitions(topic, 4))
    # It can't know better, and must not commit over what the new owner has done.
    assert members[0].assignment == had
    assert members[0].notes.names()[-1] == "assigned"
    with pytest.raises((TimeoutError, ConnectError)):
        await members[0].commit({next(iter(had)): OffsetAndMetadata(1)}, Deadline(0.2))
    events = len(members[0].notes.events)
    back()
    await shared_out(members, partitions(topic, 4))
    assert ("lost", had) == members[0].notes.events[events]


async def test_a_commit_of_a_member_that_was_removed(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(2), new_name("group")
    removed = await new_member(
        broker.bootstrap, group, [topic], session_timeout_ms=1_000, heartbeat_interval_ms=999
    )
    await shared_out([removed], partitions(topic, 2))
    back = cut_off(removed)
    other = await new_member(broker.bootstrap, group, [topic])
    await shared_out([other], partitions(topic, 2))
    back()
    with pytest.raises(CommitFailedError, match=r"max_poll_interval_ms.*session_timeout_ms"):
        await removed.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}, Deadline(30))
    await shared_out([removed, other], partitions(topic, 2))
    assert await other.committed(None, Deadline(30)) == {}


async def test_who_stalls_gives_way_and_comes_back_with_the_next_poll(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(4), new_name("group")
    busy = await new_member(broker.bootstrap, group, [topic], max_poll_interval_ms=1_000)
    other = await new_member(broker.bootstrap, group, [topic])
    await shared_out([other], partitions(topic, 4))
    assert busy.notes.names()[-1] == "lost"
    with pytest.raises(PollIntervalExceededError):
        busy.polled()
    await shared_out([busy, other], partitions(topic, 4))


async def test_a_member_that_waits_in_a_join_can_leave(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(2), new_name("group")
    holding = asyncio.Event()
    notes = Notes()

    async def during(what: str, changed: frozenset[TopicPartition]) -> None:
        if what == "revoked":
            await holding.wait()

    notes.during = during
    first = await new_member(broker.bootstrap, group, [topic], ["range"], notes=notes)
    await shared_out([first], partitions(topic, 2))
    second = await new_member(broker.bootstrap, group, [topic], ["range"])
    await until(lambda: notes.names() == ["assigned", "revoked"] and second.state is MemberState.PREPARING)
    # The group waits for the first member, and not longer than its timeout.
    with pytest.raises(GroupError) as caught:
        await second.commit({TopicPartition(topic, 0): OffsetAndMetadata(1)}, Deadline(30))
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert await second.committed(None, Deadline(30)) == {}
    async with asyncio.timeout(60):
        await second.leave()
    holding.set()
    await shared_out([first], partitions(topic, 2))


async def test_refusals_of_a_real_broker(
    broker: BrokerProcess, new_topic: NewTopic, new_name: NewName, new_member: NewMember
) -> None:
    topic, group = new_topic(1), new_name("group")
    first = await new_member(broker.bootstrap, group, [topic], ["range"])
    await shared_out([first], partitions(topic, 1))
    for strategies, settings, text in (
        (["sticky"], {}, "partition_assignment_strategy"),
        (["range"], {"session_timeout_ms": 100}, r"group\.min\.session\.timeout\.ms"),
    ):
        member = await new_member(broker.bootstrap, group, [topic], strategies, **settings)
        await until(lambda member=member: member.failure is not None)
        with pytest.raises(GroupError, match=text):
            member.polled()
