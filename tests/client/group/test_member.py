"""A member and what a coordinator says to it, faults included; the coordinator is a fake."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from tests.client.group.conftest import NewMember, Notes, TestMember, client_tasks, partitions
from tests.client.group.coordinating import OLD_VERSIONS, FakeCoordinator
from tests.support.waiting import until

from ottla_client.deadline import Deadline
from ottla_client.errors import (
    ClientError,
    CommitFailedError,
    ConfigurationError,
    FencedInstanceError,
    GroupError,
    PollIntervalExceededError,
    UnsupportedApiError,
)
from ottla_client.group import GroupMember, MemberSettings, MemberState, assignors_named
from ottla_client.group.consumer_protocol import assignment_bytes, read_subscription
from ottla_client.types import OffsetAndMetadata, TopicPartition
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.find_coordinator import FindCoordinatorRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest
from ottla_protocol.messages.join_group import JoinGroupRequest
from ottla_protocol.messages.leave_group import LeaveGroupRequest
from ottla_protocol.messages.sync_group import SyncGroupRequest

ALL = frozenset(partitions("t", 4))
OFFSETS = {TopicPartition("t", 0): OffsetAndMetadata(7, "note", 2)}


@pytest.fixture
async def fake() -> AsyncIterator[FakeCoordinator]:
    async with FakeCoordinator() as broker:
        yield broker


async def joined(member: GroupMember, wanted: frozenset[TopicPartition] = ALL) -> None:
    await until(lambda: member.group_metadata is not None and member.assignment == wanted)


def polls(member: GroupMember, error: type[ClientError]) -> Callable[[], bool]:
    """Whether a poll raises this."""

    def check() -> bool:
        try:
            member.polled()
        except error:
            return True
        return False

    return check


async def test_a_new_member_comes_back_with_the_id_that_it_is_given(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    fake.refuse[ApiKey.JOIN_GROUP] = [ErrorCode.MEMBER_ID_REQUIRED]
    member = await new_member(fake.bootstrap, "g", ["t"], client_rack="r1")
    await joined(member)
    assert [request.member_id for request in fake.of(JoinGroupRequest)] == ["", "given"]
    assert member.group_metadata == ("g", 1, "given", None)
    assert member.notes.events == [("assigned", ALL)]
    names = [protocol.name for protocol in fake.of(JoinGroupRequest)[0].protocols]
    assert names == ["range", "cooperative-sticky"]
    said = read_subscription(fake.of(JoinGroupRequest)[0].protocols[0].metadata)
    assert (said.topics, said.owned, said.generation, said.rack) == (frozenset("t"), (), -1, "r1")


PASSING = [
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.REBALANCE_IN_PROGRESS,
    ErrorCode.UNKNOWN_MEMBER_ID,
]


@pytest.mark.parametrize(
    ("api", "code"),
    [
        *((ApiKey.JOIN_GROUP, code) for code in PASSING),
        *((ApiKey.SYNC_GROUP, code) for code in (*PASSING, ErrorCode.ILLEGAL_GENERATION)),
    ],
)
async def test_retriable_errors_are_retried(
    fake: FakeCoordinator, new_member: NewMember, api: ApiKey, code: ErrorCode
) -> None:
    fake.refuse[api] = [code, code]
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    assert member.notes.events == [("assigned", ALL)]
    assert member.failure is None
    searches = len(fake.of(FindCoordinatorRequest))
    assert searches == (3 if code in (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR) else 1)


@pytest.mark.parametrize(
    ("code", "strategies", "events"),
    [
        (ErrorCode.REBALANCE_IN_PROGRESS, ["range"], ["assigned", "revoked", "assigned"]),
        (ErrorCode.REBALANCE_IN_PROGRESS, ["cooperative-sticky"], ["assigned", "assigned"]),
        (ErrorCode.ILLEGAL_GENERATION, ["range"], ["assigned", "lost", "assigned"]),
        (ErrorCode.UNKNOWN_MEMBER_ID, ["cooperative-sticky"], ["assigned", "lost", "assigned"]),
    ],
)
async def test_what_a_heartbeat_is_told(
    fake: FakeCoordinator,
    new_member: NewMember,
    code: ErrorCode,
    strategies: list[str],
    events: list[str],
) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"], strategies)
    await joined(member)
    fake.refuse[ApiKey.HEARTBEAT] = [code]
    await until(lambda: fake.generation == 2)
    await joined(member)
    assert member.notes.names() == events
    again = fake.of(JoinGroupRequest)[1]
    assert again.member_id == ("" if code is ErrorCode.UNKNOWN_MEMBER_ID else "member-1")
    keeps = events == ["assigned", "assigned"]
    said = read_subscription(again.protocols[0].metadata)
    assert frozenset(said.owned) == (ALL if keeps else frozenset())
    assert said.generation == (1 if code is ErrorCode.REBALANCE_IN_PROGRESS else -1)


@pytest.mark.parametrize("code", [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS])
async def test_a_coordinator_that_moves_or_loads_costs_nothing(
    fake: FakeCoordinator, new_member: NewMember, code: ErrorCode
) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    fake.refuse[ApiKey.HEARTBEAT] = [code] * 3
    beats = len(fake.of(HeartbeatRequest))
    await until(lambda: len(fake.of(HeartbeatRequest)) > beats + 5)
    assert member.notes.events == [("assigned", ALL)]
    assert fake.generation == 1


async def test_a_broken_connection_costs_nothing(fake: FakeCoordinator, new_member: NewMember) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    for _ in range(3):
        fake.cut()
        beats = len(fake.of(HeartbeatRequest))
        await until(lambda beats=beats: len(fake.of(HeartbeatRequest)) > beats + 1)
    assert fake.generation == 1


async def test_heartbeats_go_on_while_callbacks_run(fake: FakeCoordinator, new_member: NewMember) -> None:
    notes = Notes()
    beats: list[int] = []

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        before = len(fake.of(HeartbeatRequest))
        await until(lambda: len(fake.of(HeartbeatRequest)) > before + 3)
        beats.append(len(fake.of(HeartbeatRequest)))

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], ["range"], notes=notes)
    await joined(member)
    fake.refuse[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS] * 3
    await until(lambda: len(beats) >= 3)
    assert notes.names()[:3] == ["assigned", "revoked", "assigned"]
    member.polled()


async def test_the_generation_is_lost_while_a_callback_runs(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    notes = Notes()

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        if fake.generation == 1 and what == "assigned":
            fake.refuse[ApiKey.HEARTBEAT] = [ErrorCode.UNKNOWN_MEMBER_ID]
            await until(lambda: member.state is MemberState.UNJOINED)

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], notes=notes)
    await until(lambda: fake.generation == 2)
    await joined(member)
    assert notes.names() == ["assigned", "lost", "assigned"]


@pytest.mark.parametrize(
    ("code", "text"),
    [
        (ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "partition_assignment_strategy"),
        (ErrorCode.INVALID_SESSION_TIMEOUT, r"group\.max\.session\.timeout\.ms"),
        (ErrorCode.GROUP_MAX_SIZE_REACHED, r"group\.max\.size"),
        (ErrorCode.GROUP_AUTHORIZATION_FAILED, "not allowed to join"),
        (ErrorCode.UNKNOWN_SERVER_ERROR, "UNKNOWN_SERVER_ERROR"),
    ],
)
async def test_a_refusal_is_told_once_and_tried_again_then(
    fake: FakeCoordinator, new_member: NewMember, code: ErrorCode, text: str
) -> None:
    fake.refuse[ApiKey.JOIN_GROUP] = [code]
    member = await new_member(fake.bootstrap, "g", ["t"])
    await until(lambda: member.failure is not None)
    asked = len(fake.of(JoinGroupRequest))
    with pytest.raises(GroupError, match=text) as caught:
        member.polled()
    assert caught.value.code is code
    assert asked == 1
    member.polled()
    await joined(member)


async def test_another_kind_of_group_is_a_refusal(fake: FakeCoordinator, new_member: NewMember) -> None:
    usual = fake.answers[ApiKey.JOIN_GROUP]

    def connect(header: Any, request: Any) -> Any:
        answer: Any = usual(header, request)
        answer.protocol_type = "connect"
        return answer

    fake.answers[ApiKey.JOIN_GROUP] = connect
    member = await new_member(fake.bootstrap, "g", ["t"])
    await until(polls(member, GroupError))


async def test_a_fenced_static_member_stops_for_good(fake: FakeCoordinator, new_member: NewMember) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"], group_instance_id="one")
    await joined(member)
    assert {request.group_instance_id for request in fake.of(SyncGroupRequest)} == {"one"}
    fake.refuse[ApiKey.HEARTBEAT] = [ErrorCode.FENCED_INSTANCE_ID]
    await until(lambda: member.failure is not None and not member.assignment)
    assert member.notes.names() == ["assigned", "lost"]
    for _ in range(2):
        with pytest.raises(FencedInstanceError, match="'one'"):
            member.polled()
    await asyncio.sleep(0.05)
    assert fake.generation == 1
    with pytest.raises(CommitFailedError):
        await member.commit(OFFSETS, Deadline(30))


@pytest.mark.parametrize("instance", [None, "one"])
async def test_who_does_not_poll_leaves_and_is_told(
    fake: FakeCoordinator, new_member: NewMember, instance: str | None
) -> None:
    member = await new_member(
        fake.bootstrap, "g", ["t"], max_poll_interval_ms=150, group_instance_id=instance
    )
    await joined(member)
    await until(lambda: member.notes.names() == ["assigned", "lost"])
    assert member.group_metadata is None
    await until(lambda: len(fake.of(LeaveGroupRequest)) == (instance is None))
    with pytest.raises(CommitFailedError, match="max_poll_interval_ms"):
        await member.commit(OFFSETS, Deadline(30))
    joins = fake.asked[ApiKey.JOIN_GROUP]
    await asyncio.sleep(0.05)
    assert fake.asked[ApiKey.JOIN_GROUP] == joins
    with pytest.raises(PollIntervalExceededError, match="max_poll_interval_ms"):
        member.polled()
    await until(lambda: fake.generation == 2)
    await joined(member)


async def test_who_polls_stays(fake: FakeCoordinator, new_member: NewMember) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"], max_poll_interval_ms=2_000)
    await joined(member)
    beats = len(fake.of(HeartbeatRequest))
    while len(fake.of(HeartbeatRequest)) < beats + 6:
        member.polled()
        await asyncio.sleep(0.02)
    assert fake.generation == 1


@pytest.mark.parametrize(
    ("code", "error", "text", "lost"),
    [
        (ErrorCode.UNKNOWN_MEMBER_ID, CommitFailedError, "max_poll_interval_ms", True),
        (ErrorCode.ILLEGAL_GENERATION, CommitFailedError, "session_timeout_ms", True),
        (ErrorCode.REBALANCE_IN_PROGRESS, GroupError, "commit again", False),
        (ErrorCode.OFFSET_METADATA_TOO_LARGE, GroupError, "offset 7 of t-0", False),
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, GroupError, "TOPIC_AUTHORIZATION_FAILED", False),
    ],
)
async def test_what_a_commit_is_told(
    fake: FakeCoordinator,
    new_member: NewMember,
    code: ErrorCode,
    error: type[GroupError],
    text: str,
    lost: bool,
) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    fake.refuse[ApiKey.OFFSET_COMMIT] = [code]
    with pytest.raises(error, match=text) as caught:
        await member.commit(OFFSETS, Deadline(30))
    assert type(caught.value) is error
    assert caught.value.code is code
    rejoins = lost or code is ErrorCode.REBALANCE_IN_PROGRESS
    await until(lambda: fake.generation == (2 if rejoins else 1))
    await joined(member)
    expected = ["assigned", "lost" if lost else "revoked", "assigned"] if rejoins else ["assigned"]
    assert member.notes.names() == expected
    await member.commit(OFFSETS, Deadline(30))
    assert fake.committed["t", 0].committed_offset == 7


async def test_a_commit_that_fences_is_final(fake: FakeCoordinator, new_member: NewMember) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"], group_instance_id="one")
    await joined(member)
    fake.refuse[ApiKey.OFFSET_COMMIT] = [ErrorCode.FENCED_INSTANCE_ID]
    with pytest.raises(FencedInstanceError, match="'one'"):
        await member.commit(OFFSETS, Deadline(30))
    with pytest.raises(FencedInstanceError):
        member.polled()


async def test_nothing_is_committed_while_the_member_joins(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    fake.silent.add(ApiKey.JOIN_GROUP)
    member = await new_member(fake.bootstrap, "g")
    with pytest.raises(CommitFailedError, match="has not joined"):
        await member.commit(OFFSETS, Deadline(30))
    member.subscribe(["t"])
    await until(lambda: fake.asked[ApiKey.JOIN_GROUP] == 1)
    with pytest.raises(GroupError, match="commit again") as caught:
        await member.commit(OFFSETS, Deadline(30))
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    assert not isinstance(caught.value, CommitFailedError)
    await member.commit({}, Deadline(30))
    # The answer to JoinGroup is still to come; what is not about membership doesn't wait for it.
    assert await member.committed([TopicPartition("t", 0)], Deadline(30)) == {}
    assert not fake.committed


@pytest.mark.parametrize("code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.REBALANCE_IN_PROGRESS])
async def test_an_answer_to_a_commit_that_comes_too_late(
    fake: FakeCoordinator, new_member: NewMember, code: ErrorCode
) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    usual = fake.answers[ApiKey.OFFSET_COMMIT]
    held: list[Any] = []

    def hold(header: Any, request: Any) -> Any:
        if not held:
            held.append(request)
            fake.refuse[ApiKey.OFFSET_COMMIT] = [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS] * 10_000
        metadata = member.group_metadata
        if metadata is not None and metadata.generation_id == 2:
            fake.refuse[ApiKey.OFFSET_COMMIT] = [code]
        return usual(header, request)

    fake.answers[ApiKey.OFFSET_COMMIT] = hold
    committing = asyncio.ensure_future(member.commit(OFFSETS, Deadline(30)))
    await until(lambda: bool(held))
    fake.refuse[ApiKey.HEARTBEAT] = [ErrorCode.REBALANCE_IN_PROGRESS]
    with pytest.raises(GroupError, match="rebalanced during the commit") as caught:
        await committing
    assert caught.value.code is ErrorCode.REBALANCE_IN_PROGRESS
    heartbeats = fake.asked[ApiKey.HEARTBEAT]
    await until(lambda: fake.asked[ApiKey.HEARTBEAT] > heartbeats + 1)
    await joined(member)
    assert fake.generation == 2


async def test_an_error_of_a_callback_is_told_and_the_rebalance_goes_on(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    notes = Notes()

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        raise KeyError("mine")

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], notes=notes)
    await joined(member)
    await until(lambda: member.failure is not None)
    with pytest.raises(ClientError, match="KeyError") as caught:
        member.polled()
    assert isinstance(caught.value.__cause__, KeyError)
    member.polled()
    assert fake.generation == 1


async def test_a_static_leader_that_is_back_watches_without_assigning(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    fake.skip_assignment = True
    fake.kept_assignment = assignment_bytes(sorted(ALL)[:2])
    member = await new_member(fake.bootstrap, "g", ["t"], group_instance_id="one")
    await joined(member, frozenset(sorted(ALL)[:2]))
    assert fake.of(SyncGroupRequest)[0].assignments == []
    fake.topics["t"].partitions.pop(3)
    await until(lambda: fake.generation == 2)


async def test_an_assignment_of_topics_that_are_not_subscribed_is_not_taken(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    fake.skip_assignment = True
    fake.kept_assignment = assignment_bytes([TopicPartition("other", 0)])
    member = await new_member(fake.bootstrap, "g", ["t"])
    await until(lambda: fake.generation > 1)
    fake.skip_assignment = False
    await joined(member)
    assert member.notes.events == [("assigned", ALL)]


async def test_brokers_of_0_11(fake: FakeCoordinator, new_member: NewMember) -> None:
    fake.versions.update(OLD_VERSIONS)
    member = await new_member(fake.bootstrap, "g", ["t"])
    await joined(member)
    await until(lambda: len(fake.of(HeartbeatRequest)) > 1)
    await member.commit(OFFSETS, Deadline(30))
    found = await member.committed(None, Deadline(30), require_stable=True)
    assert found == {TopicPartition("t", 0): OffsetAndMetadata(7, "note", None)}
    await member.close(Deadline(30))
    assert [request.member_id for request in fake.of(LeaveGroupRequest)] == ["member-1"]


async def test_static_members_need_a_newer_broker(fake: FakeCoordinator, new_member: NewMember) -> None:
    fake.versions.update(OLD_VERSIONS)
    member = await new_member(fake.bootstrap, "g", ["t"], group_instance_id="one")
    await until(polls(member, UnsupportedApiError))


# ---- closing


async def test_a_close_gives_up_and_leaves(fake: FakeCoordinator, new_member: NewMember) -> None:
    notes = Notes()

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        if what == "revoked":
            await member.commit(OFFSETS, Deadline(30))

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], notes=notes)
    await joined(member)
    await member.close(Deadline(30))
    assert notes.names() == ["assigned", "revoked"]
    assert fake.committed["t", 0].committed_offset == 7
    (left,) = fake.of(LeaveGroupRequest)
    assert [(each.member_id, each.reason) for each in left.members] == [
        ("member-1", "the consumer is being closed")
    ]
    assert member.assignment == frozenset()
    await member.close(Deadline(30))


async def test_a_static_member_does_not_leave_at_its_close(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    member = await new_member(fake.bootstrap, "g", ["t"], group_instance_id="one")
    await joined(member)
    await member.close(Deadline(30))
    assert member.notes.names() == ["assigned", "revoked"]
    assert not fake.of(LeaveGroupRequest)


async def test_a_close_while_joining_leaves_on_another_connection(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    fake.refuse[ApiKey.JOIN_GROUP] = [ErrorCode.MEMBER_ID_REQUIRED]
    member = await new_member(fake.bootstrap, "g")
    fake.asked.clear()
    fake.answers[ApiKey.JOIN_GROUP] = _then_silent(fake.answers[ApiKey.JOIN_GROUP])
    member.subscribe(["t"])
    await until(lambda: fake.asked[ApiKey.JOIN_GROUP] == 2)
    await member.close(Deadline(30))
    assert [each.member_id for each in fake.of(LeaveGroupRequest)[0].members] == ["given"]


def _then_silent(usual: Any) -> Any:
    answers = [usual]
    return lambda header, request: answers.pop()(header, request) if answers else None


@pytest.mark.parametrize("fault", ["silent", "gone", "silent from the start"])
async def test_a_close_ends_by_its_deadline_whatever_the_broker_does(
    fake: FakeCoordinator, new_member: NewMember, fault: str
) -> None:
    if fault == "silent from the start":
        fake.silent.update((ApiKey.JOIN_GROUP, ApiKey.LEAVE_GROUP))
        member = await new_member(fake.bootstrap, "g", ["t"])
        await until(lambda: fake.asked[ApiKey.JOIN_GROUP] == 1)
    else:
        member = await new_member(fake.bootstrap, "g", ["t"])
        await joined(member)
        if fault == "silent":
            fake.silent.update((ApiKey.LEAVE_GROUP, ApiKey.HEARTBEAT))
        else:
            await fake.stop()
    async with asyncio.timeout(60):
        await member.close(Deadline(0.3))


async def test_a_callback_that_does_not_end_is_cut_short_by_the_close(
    fake: FakeCoordinator, new_member: NewMember
) -> None:
    notes = Notes()

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        await asyncio.Event().wait()

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], notes=notes)
    await until(lambda: bool(notes.events))
    async with asyncio.timeout(60):
        await member.close(Deadline(0.1))
    # There was no time left to wait for an answer, but enough to send.
    await until(lambda: len(fake.of(LeaveGroupRequest)) == 1)


async def test_a_callback_may_close_the_member(fake: FakeCoordinator, new_member: NewMember) -> None:
    notes = Notes()

    async def during(what: str, partitions: frozenset[TopicPartition]) -> None:
        if what == "assigned":
            await member.close(Deadline(30))

    notes.during = during
    member = await new_member(fake.bootstrap, "g", ["t"], notes=notes)
    await until(lambda: notes.names() == ["assigned", "revoked"])
    await until(lambda: len(fake.of(LeaveGroupRequest)) == 1)


async def _life(member: TestMember) -> None:
    await joined(member)
    await member.commit(OFFSETS, Deadline(30))
    await member.committed(None, Deadline(30))
    await member.close(Deadline(30))


async def test_cancelled_at_every_await(fake: FakeCoordinator, new_member: NewMember) -> None:
    """Cancel after each number of turns of the loop: nothing is left, and the next close ends."""
    for turns in range(0, 60, 3):
        member = await new_member(fake.bootstrap, f"g{turns}", ["t"])
        life = asyncio.create_task(_life(member))
        for _ in range(turns):
            await asyncio.sleep(0)
        life.cancel()
        await asyncio.wait([life])
        await member.leave()
        assert not client_tasks()


async def test_a_close_that_is_cancelled_leaves_no_task(fake: FakeCoordinator, new_member: NewMember) -> None:
    for turns in range(1, 12):
        member = await new_member(fake.bootstrap, f"g{turns}", ["t"])
        await joined(member)
        closing = asyncio.create_task(member.close(Deadline(30)))
        for _ in range(turns):
            await asyncio.sleep(0)
        closing.cancel()
        await asyncio.wait([closing])
        await until(
            lambda member=member: all(task.done() for task in (member._join_task, member._heartbeat_task))
        )
        await member.cluster.close()


def test_settings_are_checked() -> None:
    with pytest.raises(ConfigurationError, match="below session_timeout_ms"):
        MemberSettings(session_timeout_ms=3000)
    with pytest.raises(ConfigurationError, match="max_poll_interval_ms"):
        MemberSettings(max_poll_interval_ms=0)
    with pytest.raises(ConfigurationError, match="group_instance_id"):
        MemberSettings(group_instance_id="")
    with pytest.raises(ConfigurationError, match="group_id"):
        GroupMember(
            None,  # type: ignore[arg-type]
            "",
            settings=MemberSettings(),
            assignors=assignors_named(["range"]),
            callbacks=Notes(),
        )
