"""Group members with ids, generations and numbers that are not right, and groups that are full."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any

import pytest
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    HeartbeatTopicPartitions,
)
from ottla_protocol.messages.delete_groups import DeleteGroupsRequest
from ottla_protocol.messages.describe_groups import DescribeGroupsRequest
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from ottla_protocol.messages.leave_group import LeaveGroupRequest, MemberIdentity
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from ottla_protocol.messages.offset_delete import (
    OffsetDeleteRequest,
    OffsetDeleteRequestPartition,
    OffsetDeleteRequestTopic,
)
from ottla_protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from ottla_protocol.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

Topic = Callable[..., str]
Name = Callable[..., str]


def ready(wire: Wire, group: str) -> None:
    """Wait until the group's coordinator is there and has loaded."""

    def led() -> bool:
        found = wire.call(FindCoordinatorRequest(key=group), 2)
        if found.error_code:
            return False
        beat = wire.call(HeartbeatRequest(group_id=group, generation_id=1, member_id="x"), 3)
        return beat.error_code == ErrorCode.UNKNOWN_MEMBER_ID

    wait_for(led, f"the coordinator of {group}", every=0.1)


def join_request(group: str, member_id: str = "", **options: Any) -> JoinGroupRequest:
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"m")]
    given = {
        "session_timeout_ms": 30_000,
        "rebalance_timeout_ms": 1000,
        "protocol_type": "consumer",
        "protocols": protocols,
        **options,
    }
    return JoinGroupRequest(group_id=group, member_id=member_id, **given)


def join(wire: Wire, group: str, member_id: str = "", version: int = 5, **options: Any) -> Any:
    return wire.call(join_request(group, member_id, **options), version)


def stable(wire: Wire, group: str, **options: Any) -> tuple[str, int]:
    """Make a group with one member; its id and the generation."""
    ready(wire, group)
    member_id = ""
    if "group_instance_id" not in options:
        first = join(wire, group, **options)
        assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
        member_id = first.member_id
    joined = join(wire, group, member_id, **options)
    assert joined.error_code == 0
    shares = [SyncGroupRequestAssignment(member_id=joined.member_id, assignment=b"all")]
    request = SyncGroupRequest(
        group_id=group, generation_id=joined.generation_id, member_id=joined.member_id, assignments=shares
    )
    assert wire.call(request, 3).assignment == b"all"
    return joined.member_id, joined.generation_id


def commit(
    wire: Wire, group: str, topic: str, *, member: str = "", generation: int = -1, **options: Any
) -> int:
    partition = OffsetCommitRequestPartition(**{"partition_index": 0, "committed_offset": 1, **options})
    request = OffsetCommitRequest(
        group_id=group,
        generation_id_or_member_epoch=generation,
        member_id=member,
        topics=[OffsetCommitRequestTopic(name=topic, partitions=[partition])],
    )
    return int(wire.call(request, 7).topics[0].partitions[0].error_code)


def test_stale_members_and_generations(wire: Wire, new_topic: Topic, new_name: Name) -> None:
    group, topic = new_name("group"), new_topic()
    member, generation = stable(wire, group)
    unknown, illegal = ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION

    def beat(member: str, generation: int) -> int:
        return int(
            wire.call(
                HeartbeatRequest(group_id=group, generation_id=generation, member_id=member), 3
            ).error_code
        )

    def sync(member: str, generation: int, **options: Any) -> int:
        given = {"protocol_type": "consumer", "protocol_name": "range", **options}
        request = SyncGroupRequest(group_id=group, generation_id=generation, member_id=member, **given)
        return int(wire.call(request, 5).error_code)

    for ask in (beat, sync):
        assert ask(member, generation) == 0
        assert ask("stale", generation) == unknown
        assert ask("", generation) == unknown
        assert ask(member, generation + 1) == illegal
        assert ask(member, generation - 1) == illegal
    assert sync(member, generation, protocol_type="other") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert sync(member, generation, protocol_name="other") == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert join(wire, group, "stale").error_code == unknown
    assert commit(wire, group, topic, member="stale", generation=generation) == unknown
    assert commit(wire, group, topic, member=member, generation=generation + 1) == illegal
    assert commit(wire, group, topic) == unknown, "a group with members takes no commit from outside"
    assert commit(wire, group, topic, member=member, generation=generation) == 0


def test_a_join_that_does_not_fit_the_group(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    stable(wire, group)
    inconsistent = ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    other = [JoinGroupRequestProtocol(name="other", metadata=b"")]
    assert join(wire, group, protocol_type="connect").error_code == inconsistent
    assert join(wire, group, protocols=other).error_code == inconsistent
    assert join(wire, group, protocols=[]).error_code == inconsistent
    assert join(wire, group, protocol_type="").error_code == inconsistent


@pytest.mark.parametrize("timeout", [0, -1, 499, 1_800_001, 2**31 - 1])
def test_session_timeouts_out_of_range(timeout: int, wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    ready(wire, group)
    answer = join(wire, group, session_timeout_ms=timeout)
    assert answer.error_code == ErrorCode.INVALID_SESSION_TIMEOUT


def test_an_empty_group_id(wire: Wire) -> None:
    ready(wire, "some-group")
    assert join(wire, "").error_code == ErrorCode.INVALID_GROUP_ID
    beat = wire.call(HeartbeatRequest(group_id="", generation_id=1, member_id="m"), 3)
    assert beat.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_static_member_is_fenced(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    older, generation = stable(wire, group, group_instance_id="one")
    newer = join(wire, group, group_instance_id="one")
    assert newer.error_code == 0
    assert newer.member_id != older
    fenced = ErrorCode.FENCED_INSTANCE_ID
    beat = HeartbeatRequest(
        group_id=group, generation_id=generation, member_id=older, group_instance_id="one"
    )
    assert wire.call(beat, 3).error_code == fenced
    sync = SyncGroupRequest(
        group_id=group, generation_id=generation, member_id=older, group_instance_id="one"
    )
    assert wire.call(sync, 3).error_code == fenced
    assert join(wire, group, older, group_instance_id="one").error_code == fenced
    leave = LeaveGroupRequest(
        group_id=group, members=[MemberIdentity(member_id=older, group_instance_id="one")]
    )
    assert wire.call(leave, 3).members[0].error_code == fenced


def test_leaving_twice_and_strangers_leaving(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    member, _ = stable(wire, group)
    unknown = ErrorCode.UNKNOWN_MEMBER_ID
    assert wire.call(LeaveGroupRequest(group_id=group, member_id="stranger"), 2).error_code == unknown
    assert wire.call(LeaveGroupRequest(group_id=group, member_id=member), 2).error_code == 0
    assert wire.call(LeaveGroupRequest(group_id=group, member_id=member), 2).error_code == unknown
    both = [MemberIdentity(member_id=member), MemberIdentity(group_instance_id="absent")]
    answer = wire.call(LeaveGroupRequest(group_id=group, members=both), 3)
    assert [one.error_code for one in answer.members] == [unknown, unknown]


def test_commits_that_cannot_be_kept(wire: Wire, new_topic: Topic, new_name: Name) -> None:
    group, topic = new_name("group"), new_topic()
    ready(wire, group)
    assert commit(wire, group, topic, committed_metadata="x" * 5000) == ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert commit(wire, group, "no-such-topic-committed") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, group, topic, partition_index=5) == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert commit(wire, group, topic, generation=5) in (
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
    )
    assert commit(wire, group, topic) == 0


def test_offsets_of_groups_and_topics_that_are_not_there(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    ready(wire, group)
    asked = OffsetFetchRequestTopics(name="no-such-topic", partition_indexes=[0, 7])
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[asked])])
    (answer,) = wire.call(request, 8).groups
    assert answer.error_code == 0
    got = [(p.partition_index, p.committed_offset, p.error_code) for p in answer.topics[0].partitions]
    assert got == [(0, -1, 0), (7, -1, 0)]
    request = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=None)])
    assert wire.call(request, 8).groups[0].topics == []


def test_a_refused_join_and_the_deletion_of_no_offset(wire: Wire, new_topic: Topic, new_name: Name) -> None:
    """A first join without protocols makes a group, and deleting an offset that it hasn't got removes the group."""
    group, topic = new_name("group"), new_topic()
    ready(wire, group)

    def state() -> str:
        return str(wire.call(DescribeGroupsRequest(groups=[group]), 5).groups[0].group_state)

    assert state() == "Dead"
    answer = wire.call(join_request(group, protocols=[]), 9)
    assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert state() == "Empty"
    asked = OffsetDeleteRequestTopic(name=topic, partitions=[OffsetDeleteRequestPartition(partition_index=0)])
    deleted = wire.call(OffsetDeleteRequest(group_id=group, topics=[asked]), 0)
    assert deleted.error_code == 0
    assert state() == "Dead"


def test_groups_that_cannot_be_deleted(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    stable(wire, group)
    answer = wire.call(DeleteGroupsRequest(groups_names=[group, "no-such-group"]), 2)
    got = {one.group_id: one.error_code for one in answer.results}
    assert got == {group: ErrorCode.NON_EMPTY_GROUP, "no-such-group": ErrorCode.GROUP_ID_NOT_FOUND}


def test_a_coordinator_of_an_unknown_kind(wire: Wire) -> None:
    answer = wire.call(FindCoordinatorRequest(key="k", key_type=9), 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


@pytest.mark.ottla_only
def test_members_of_the_consumer_protocol_that_lie(wire: Wire, new_topic: Topic, new_name: Name) -> None:
    group, other, topic = new_name("group"), new_name("group"), new_topic()
    ready(wire, group)
    ready(wire, other)
    long = "x" * 32_000

    def beat(member: str, epoch: int, group: str = group, **options: Any) -> tuple[int, int]:
        if epoch == 0:
            options = {
                "rebalance_timeout_ms": 60_000,
                "subscribed_topic_names": [topic],
                "topic_partitions": [],
                **options,
            }
        request = ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **options
        )
        answer = wire.call(request, 1)
        return answer.error_code, answer.member_epoch

    error, epoch = beat("m", 0)
    assert error == 0
    assert beat("stranger", 0, other)[0] == 0
    # What it says that it owns is not believed.
    lie = [HeartbeatTopicPartitions(topic_id=b"z" * 16, partitions=[-1, 0, 2**31 - 1])]
    assert beat("m", epoch, topic_partitions=lie) == (0, epoch)
    unknown, invalid, fenced = (
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_MEMBER_EPOCH,
    )
    for member, number, code in (
        ("m", epoch + 1000, fenced),
        ("m", 2**31 - 1, fenced),
        ("m", -3, invalid),
        ("m", -(2**31), invalid),
        ("m", -2, invalid),
        ("", 0, invalid),
        ("stranger", 1, unknown),
        (long, 1, unknown),
    ):
        assert beat(member, number)[0] == code, (member[:10], number)
    assert beat("m", epoch, "no-such-group")[0] == ErrorCode.GROUP_ID_NOT_FOUND
    assert beat("m", 0, " ")[0] == invalid
    assert beat("n", 0, topic_partitions=lie)[0] == invalid
    assert beat("n", 0, server_assignor=long)[0] == ErrorCode.UNSUPPORTED_ASSIGNOR
    assert beat("n", 0, subscribed_topic_regex="(a{999}){999}")[0] == ErrorCode.INVALID_REGULAR_EXPRESSION
    # Names are names, however long: such a member gets what there is.
    assert beat(long, 0, instance_id=long, rack_id=long)[0] == 0
    assert beat(long, -1)[0] == 0
    assert beat("m", epoch)[0] == 0


@pytest.mark.ottla_only
def test_a_classic_group_whose_assignment_lies_is_not_upgraded(wire: Wire, new_name: Name) -> None:
    group = new_name("group")
    member, generation = stable(wire, group)
    request = ConsumerGroupHeartbeatRequest(
        group_id=group,
        member_id="new",
        rebalance_timeout_ms=60_000,
        subscribed_topic_names=["t"],
        topic_partitions=[],
    )
    answer = wire.call(request, 1)
    assert answer.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in answer.error_message
    beat = HeartbeatRequest(group_id=group, generation_id=generation, member_id=member)
    assert wire.call(beat, 3).error_code == 0


def test_a_full_group_turns_new_members_away(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings={"group.max.size": 2})
    with Wire(broker.port) as wire, Wire(broker.port) as second, Wire(broker.port) as third:
        member, _ = stable(wire, "full")
        other = join(second, "full").member_id
        second.send(request_bytes(join_request("full", other), 5, 99))
        wait_for(
            lambda: (
                wire.call(HeartbeatRequest(group_id="full", generation_id=1, member_id=member), 3).error_code
                == ErrorCode.REBALANCE_IN_PROGRESS
            ),
            "the group to rebalance",
        )
        joined = join(wire, "full", member)
        assert joined.error_code == 0
        assert second.receive()[:10] == struct.pack(">iih", 99, 0, 0)
        for _ in range(2):
            assert join(third, "full").error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        beat = HeartbeatRequest(group_id="full", generation_id=joined.generation_id, member_id=member)
        assert wire.call(beat, 3).error_code == 0
