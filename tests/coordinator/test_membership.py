"""Joining, syncing, heartbeats and leaving, as in Kafka's GroupCoordinator."""

from __future__ import annotations

import io
from typing import Any

import pytest
from tests.coordinator.harness import DELAY_MS, REBALANCE_MS, SESSION_MS, Waiting, World

from ottla_broker import events
from ottla_broker.coordinator.group.membership import LeaveRequest
from ottla_broker.coordinator.shard import MOST_BYTES
from ottla_protocol.errors import ErrorCode as Code


@pytest.fixture
def world() -> World:
    return World()


# Ids and checks


def test_the_first_join_gets_an_id_and_the_second_joins_with_it(world: World) -> None:
    first = world.join()
    assert first.code is Code.MEMBER_ID_REQUIRED
    assert first.answer.member_id.startswith("client-")
    assert len(first.answer.member_id) == len("client-") + 36
    second = world.join(first.answer.member_id)
    world.clock.advance(DELAY_MS / 1000)
    assert second.joined.member_id == first.answer.member_id == second.joined.leader
    assert second.joined.generation_id == 1
    assert second.joined.protocol_name == "range"
    assert [m.metadata for m in second.joined.members] == [b"meta"]


def test_before_version_4_the_first_join_makes_a_member(world: World) -> None:
    join = world.join(version=3)
    assert not join.done
    world.clock.advance(DELAY_MS / 1000)
    assert join.joined.member_id


def test_an_id_that_was_never_given_out_is_unknown(world: World) -> None:
    assert world.join("client-made-up").code is Code.UNKNOWN_MEMBER_ID
    world.stable()
    assert world.join("client-made-up").code is Code.UNKNOWN_MEMBER_ID


def test_the_second_member_is_not_unknown(world: World) -> None:
    [first], generation = world.stable()
    second = world.new()
    assert not second.done
    assert world.heartbeat(first, generation) is Code.REBALANCE_IN_PROGRESS
    again = world.join(first)
    assert again.joined.generation_id == second.joined.generation_id == generation + 1
    assert {m.member_id for m in again.joined.members} == {first, second.joined.member_id}
    assert second.joined.members == []
    world.finish([again, second])


def test_an_unused_member_id_expires_and_does_not_block_the_others(world: World) -> None:
    [first], _ = world.stable()
    unused = world.member_id()
    joining = world.new()
    rejoin = world.join(first)
    assert not rejoin.done  # the id given out is waited for
    world.clock.advance(SESSION_MS / 1000)
    assert rejoin.joined
    assert joining.joined
    assert world.join(unused).code is Code.UNKNOWN_MEMBER_ID


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001])
def test_session_timeout_out_of_bounds(world: World, session_ms: int) -> None:
    assert world.join(session_ms=session_ms).code is Code.INVALID_SESSION_TIMEOUT


def test_group_needs_a_name(world: World) -> None:
    assert world.join(group="").code is Code.INVALID_GROUP_ID
    assert world.sync("m", 1, group="").code is Code.INVALID_GROUP_ID
    assert world.heartbeat("m", 1, group="") is Code.INVALID_GROUP_ID
    assert world.leave("m", group="") == (Code.INVALID_GROUP_ID, [])


def test_protocols_must_agree(world: World) -> None:
    assert world.join(protocols=()).code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="").code is Code.INCONSISTENT_GROUP_PROTOCOL
    world.stable(protocols=(("range", b""), ("roundrobin", b"")))
    assert world.join(protocols=(("sticky", b""),)).code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocols=(("roundrobin", b""),)).code is Code.MEMBER_ID_REQUIRED


def test_a_refused_join_makes_an_empty_group(world: World) -> None:
    """As in Kafka, unless it names a member."""
    world.join(protocols=())
    assert [(each.group_id, each.state) for each in world.listed([], [])[1]] == [("g", "Empty")]
    assert world.join(member_id="unknown", group="other").code is Code.UNKNOWN_MEMBER_ID
    assert [each.group_id for each in world.listed([], [])[1]] == ["g"]


def test_the_protocol_with_most_votes_among_those_all_support_is_chosen(world: World) -> None:
    joins = [
        world.new(protocols=(("only-mine", b""), ("a", b"1"), ("b", b"2"))),
        world.new(protocols=(("b", b"3"), ("a", b"4"))),
        world.new(protocols=(("b", b"5"), ("a", b"6"))),
    ]
    world.clock.advance(2 * DELAY_MS / 1000)
    assert {join.joined.protocol_name for join in joins} == {"b"}
    leader = next(join.joined for join in joins if join.joined.members)
    assert sorted(m.metadata for m in leader.members) == [b"2", b"3", b"5"]


def test_group_max_size() -> None:
    world = World(max_size=2)
    ids, generation = world.stable(2)
    refused = world.join()
    assert refused.code is Code.GROUP_MAX_SIZE_REACHED
    assert refused.answer.member_id == ""
    # Members that are in may rejoin, and one that leaves makes room.
    world.leave(ids[1])
    rejoin = world.join(ids[0])
    assert rejoin.joined.generation_id == generation + 1
    assert world.join().code is Code.MEMBER_ID_REQUIRED


def test_group_max_size_while_preparing_admits_the_first() -> None:
    world = World(max_size=2)
    ids = [world.member_id() for _ in range(3)]
    joins = [world.join(member_id) for member_id in ids]
    assert joins[2].code is Code.GROUP_MAX_SIZE_REACHED
    world.clock.advance(2 * DELAY_MS / 1000)
    assert joins[0].joined
    assert joins[1].joined


# The first rebalance


def test_the_first_rebalance_waits_its_delay(world: World) -> None:
    join = world.new()
    world.clock.advance(DELAY_MS / 1000 - 0.01)
    assert not join.done
    world.clock.advance(0.01)
    assert join.joined


def test_the_first_rebalance_begins_when_no_member_has_come_for_the_delay(world: World) -> None:
    joins = [world.new()]
    world.clock.advance(1)
    joins.append(world.new())
    world.clock.advance(DELAY_MS / 1000 - 0.5)
    assert not any(join.done for join in joins)
    world.clock.advance(0.5)  # Kafka begins it two seconds later, after a second delay
    assert all(join.joined.generation_id == 1 for join in joins)


@pytest.mark.parametrize(("gap", "silence"), [(0, 1), (0.1, 1), (0.5, 2), (0.7, 2.8), (0.9, 3)])
def test_members_that_come_close_together_are_waited_for_less(
    world: World, gap: float, silence: float
) -> None:
    joins = [world.new()]
    for each in (gap, gap / 2, gap / 3):
        world.clock.advance(each)
        joins.append(world.new())
    world.clock.advance(silence - 0.01)
    assert not any(join.done for join in joins)
    world.clock.advance(0.02)
    assert all(join.joined.generation_id == 1 for join in joins)


def test_new_members_extend_the_delay_up_to_the_rebalance_timeout(world: World) -> None:
    joins = [world.new(rebalance_ms=8_000)]
    for _ in range(7):
        world.clock.advance(1)
        joins.append(world.new(rebalance_ms=8_000))
    assert not any(join.done for join in joins)
    world.clock.advance(1)  # 8 s: the rebalance timeout
    assert all(join.joined.generation_id == 1 for join in joins)


def test_without_delay_the_first_member_is_served_at_once() -> None:
    world = World(initial_rebalance_delay_ms=0)
    join = world.new()
    world.clock.run_due()
    assert join.joined


def test_later_rebalances_do_not_wait_the_delay(world: World) -> None:
    [first], _ = world.stable()
    second = world.new()
    assert world.join(first).joined
    assert second.joined


# Members that are lost while others wait


def test_a_member_lost_while_preparing_does_not_block_the_others(world: World) -> None:
    ids, generation = world.stable(3)
    newcomer = world.new()
    rejoins = [world.join(member_id) for member_id in ids[:2]]
    assert not newcomer.done
    for _ in range(3):  # the third says nothing until its session is over
        world.clock.advance(SESSION_MS / 3000)
    assert newcomer.joined.generation_id == generation + 1
    assert all(rejoin.joined for rejoin in rejoins)
    assert world.heartbeat(ids[2], generation) is Code.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_while_preparing_does_not_block_the_others(world: World) -> None:
    ids, _ = world.stable(2)
    newcomer = world.new()
    rejoin = world.join(ids[0])
    assert world.leave(ids[1]) == (Code.NONE, [Code.NONE])
    assert newcomer.joined
    assert rejoin.joined


def test_a_waiting_member_that_leaves_is_answered(world: World) -> None:
    ids, _ = world.stable(2)
    waiting = world.join(ids[0])
    assert not waiting.done
    world.leave(ids[0])
    assert waiting.code is Code.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_rejoin_is_removed_after_the_rebalance_timeout(world: World) -> None:
    ids, generation = world.stable(2, rebalance_ms=20_000)
    newcomer = world.new(rebalance_ms=20_000)
    rejoin = world.join(ids[0], rebalance_ms=20_000)
    for _ in range(19):
        world.clock.advance(1)
        assert world.heartbeat(ids[1], generation) is Code.REBALANCE_IN_PROGRESS
    assert not rejoin.done
    world.clock.advance(1)
    assert rejoin.joined
    assert newcomer.joined
    assert world.heartbeat(ids[1], generation) is Code.UNKNOWN_MEMBER_ID


def test_a_leader_that_does_not_rejoin_is_replaced(world: World) -> None:
    ids, _ = world.stable(2)
    world.leave(ids[0])
    rejoin = world.join(ids[1])
    assert rejoin.joined.leader == ids[1]
    assert [m.member_id for m in rejoin.joined.members] == [ids[1]]


def test_a_new_members_first_join_waits_no_longer_than_five_minutes(world: World) -> None:
    # A static member is waited for, for as long as its session lasts.
    static = world.join(instance="s", session_ms=1_000_000, rebalance_ms=1_000_000)
    world.clock.advance(DELAY_MS / 1000)
    world.finish([static])
    newcomer = world.new()
    world.clock.advance(299)
    assert not newcomer.done
    world.clock.advance(1)
    assert newcomer.code is Code.UNKNOWN_MEMBER_ID


def test_a_second_join_of_a_waiting_member_releases_the_first(world: World) -> None:
    ids, _ = world.stable(2)
    first = world.join(ids[0])
    second = world.join(ids[0])
    assert first.code is Code.REBALANCE_IN_PROGRESS
    assert not second.done
    world.join(ids[1])
    assert second.joined


def test_the_last_member_leaving_empties_the_group(world: World) -> None:
    [member], generation = world.stable()
    world.leave(member)
    assert world.state() == "Empty"
    assert world.heartbeat(member, generation) is Code.UNKNOWN_MEMBER_ID
    assert world.sync(member, generation).code is Code.UNKNOWN_MEMBER_ID
    # It can be joined again, with its generations going on.
    _, later = world.stable()
    assert later > generation


# Sync


def test_assignment_reaches_each_member_and_waits_for_the_log(world: World) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    waiting = world.sync(follower, 1)
    world.partition.hold = True
    brought = world.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert not waiting.done
    assert not brought.done
    assert world.state() == "CompletingRebalance"
    world.partition.release()
    assert brought.synced.assignment == b"L"
    assert waiting.synced.assignment == b"F"
    assert waiting.synced.protocol_type == "consumer"
    assert waiting.synced.protocol_name == "range"
    assert world.state() == "Stable"
    assert world.sync(follower, 1).synced.assignment == b"F"


def test_sync_is_checked(world: World) -> None:
    ids, generation = world.stable(2)
    assert world.sync("absent", generation).code is Code.UNKNOWN_MEMBER_ID
    assert world.sync(ids[0], generation + 1).code is Code.ILLEGAL_GENERATION
    assert world.sync(ids[0], generation, protocol_type="connect").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(ids[0], generation, protocol_name="other").code is Code.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(ids[0], generation, protocol_type="consumer", protocol_name="range").synced
    world.join(ids[0])
    assert world.sync(ids[1], generation).code is Code.REBALANCE_IN_PROGRESS


def test_an_assignment_from_a_follower_is_ignored(world: World) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    usurped = world.sync(follower, 1, {leader: b"x", follower: b"everything"})
    assert not usurped.done
    world.sync(leader, 1, {leader: b"L", follower: b"F"})
    assert usurped.synced.assignment == b"F"


def test_a_member_that_leaves_while_others_wait_for_the_assignment_makes_them_rejoin(world: World) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    waiting = world.sync(follower, 1)
    world.leave(leader)
    assert waiting.code is Code.REBALANCE_IN_PROGRESS
    assert world.join(follower).joined.leader == follower


def test_a_member_that_leaves_while_it_waits_for_its_assignment_is_answered(world: World) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    waiting = world.sync(follower, 1)
    world.leave(follower)
    assert waiting.code is Code.UNKNOWN_MEMBER_ID


def test_members_that_never_sync_are_removed(world: World) -> None:
    joins = [world.new(rebalance_ms=20_000), world.new(rebalance_ms=20_000)]
    world.wait_for_more(joins)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    waiting = world.sync(follower, 1)
    for _ in range(20):  # the leader beats, but does not bring the assignment
        assert world.heartbeat(leader, 1) is Code.NONE
        world.clock.advance(1)
    assert waiting.code is Code.REBALANCE_IN_PROGRESS
    assert world.heartbeat(leader, 1) is Code.UNKNOWN_MEMBER_ID
    assert world.join(follower, rebalance_ms=20_000).joined.leader == follower


@pytest.mark.parametrize(
    ("log", "answer"),
    [
        (Code.NOT_LEADER_OR_FOLLOWER, Code.NOT_COORDINATOR),
        (Code.NOT_ENOUGH_REPLICAS, Code.COORDINATOR_NOT_AVAILABLE),
        (Code.MESSAGE_TOO_LARGE, Code.UNKNOWN_SERVER_ERROR),
        (Code.REQUEST_TIMED_OUT, Code.REBALANCE_IN_PROGRESS),
    ],
)
@pytest.mark.parametrize("late", [False, True])
def test_an_assignment_that_cannot_be_written_begins_a_rebalance(
    world: World, log: Code, answer: Code, late: bool
) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    waiting = world.sync(follower, 1)
    if late:
        world.partition.hold = True
    else:
        world.partition.refuse = log
    brought = world.sync(leader, 1, {leader: b"L", follower: b"F"})
    world.partition.release(log)
    assert brought.code is answer
    assert waiting.code is answer
    assert world.state() == "PreparingRebalance"
    world.partition.refuse, world.partition.hold = None, False
    world.finish([world.join(leader), world.join(follower)][::-1])


def test_a_group_that_no_record_can_hold_is_named_in_the_log(world: World) -> None:
    log = io.StringIO()
    events.configure(stream=log)
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    world.partition.most_bytes = 300
    assert world.sync(leader, 1, {leader: b"L" * 300}).code is Code.UNKNOWN_SERVER_ERROR
    assert "a group has too many members, or too large ones" in log.getvalue()
    assert "max.message.bytes" in log.getvalue()
    # The group goes on as soon as its record has room.
    world.partition.most_bytes = 3000
    world.finish([world.join(join.joined.member_id) for join in joins])


def test_a_record_that_takes_too_long_to_encode_is_refused(world: World) -> None:
    """Whatever the topic's max.message.bytes says."""
    joins = [world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    world.partition.most_bytes = 2 * MOST_BYTES
    assert world.sync(leader, 1, {leader: bytes(MOST_BYTES)}).code is Code.UNKNOWN_SERVER_ERROR
    world.finish([world.join(leader)])


def test_a_rebalance_that_begins_while_the_assignment_is_written_wins(world: World) -> None:
    [first], _ = world.stable()
    second = world.new()
    rejoin = world.join(first)
    world.partition.hold = True
    brought = world.sync(first, 2, {first: b"1", second.joined.member_id: b"2"})
    third = world.new()
    assert brought.code is Code.REBALANCE_IN_PROGRESS
    world.partition.release()
    assert world.state() == "PreparingRebalance"
    world.partition.hold = False
    joins = [world.join(first), world.join(second.joined.member_id), third]
    assert {join.joined.generation_id for join in joins} == {3}
    assert rejoin.joined


# Rejoining


def test_a_follower_that_rejoins_unchanged_is_answered_at_once(world: World) -> None:
    ids, generation = world.stable(2)
    again = world.join(ids[1])
    assert again.joined.generation_id == generation
    assert again.joined.members == []
    assert again.joined.leader == ids[0]
    assert world.state() == "Stable"


def test_a_follower_that_rejoins_with_other_metadata_begins_a_rebalance(world: World) -> None:
    ids, _ = world.stable(2)
    assert not world.join(ids[1], protocols=(("range", b"other"),)).done
    assert world.state() == "PreparingRebalance"


def test_the_leader_that_rejoins_begins_a_rebalance(world: World) -> None:
    ids, _ = world.stable(2)
    assert not world.join(ids[0]).done
    assert world.state() == "PreparingRebalance"


def test_rejoining_while_completing(world: World) -> None:
    joins = [world.new(), world.new()]
    world.clock.advance(2 * DELAY_MS / 1000)
    leader = joins[0].joined.leader
    follower = next(j.joined.member_id for j in joins if j.joined.member_id != leader)
    assert len(world.join(leader).joined.members) == 2  # its answer was lost: it gets it again
    assert world.join(follower).joined.members == []
    waiting = world.sync(follower, 1)
    changed = world.join(follower, protocols=(("range", b"new"),))
    assert not changed.done
    assert waiting.code is Code.REBALANCE_IN_PROGRESS
    assert world.state() == "PreparingRebalance"


def test_cooperative_members_settle_in_two_rebalances(world: World) -> None:
    """Cooperative-sticky: the member that gives up partitions rejoins, and the next rebalance is the last."""
    options = {"protocols": (("cooperative-sticky", b"owns all"),)}
    [first], _ = world.stable(**options)
    second = world.new(**options)
    ids, generation = world.finish([world.join(first, **options), second])
    # The first gave partitions up: it rejoins with what it owns now.
    given_up = {"protocols": (("cooperative-sticky", b"owns half"),)}
    rejoin = world.join(first, **given_up)
    other = world.join(ids[1] if ids[0] == first else ids[0], **options)
    _, final = world.finish([rejoin, other])
    assert final == generation + 1
    for member_id in ids:
        for _ in range(5):
            assert world.heartbeat(member_id, final) is Code.NONE
    assert world.state() == "Stable"


# Heartbeats


def test_heartbeats_in_each_state(world: World) -> None:
    assert world.heartbeat("m", 1) is Code.UNKNOWN_MEMBER_ID
    join = world.new()
    world.clock.advance(DELAY_MS / 1000)
    member = join.joined.member_id
    assert world.heartbeat(member, 1) is Code.NONE
    world.sync(member, 1, {member: b""})
    assert world.heartbeat(member, 1) is Code.NONE
    assert world.heartbeat(member, 0) is Code.ILLEGAL_GENERATION
    assert world.heartbeat("other", 1) is Code.UNKNOWN_MEMBER_ID
    second = world.new()
    assert world.heartbeat(member, 1) is Code.REBALANCE_IN_PROGRESS
    assert not second.done


def test_a_member_stays_with_heartbeats_and_times_out_without(world: World) -> None:
    ids, generation = world.stable(2)
    for _ in range(10):
        world.clock.advance(SESSION_MS / 2000)
        assert world.heartbeat(ids[0], generation) in (Code.NONE, Code.REBALANCE_IN_PROGRESS)
    assert world.heartbeat(ids[1], generation) is Code.UNKNOWN_MEMBER_ID
    assert world.join(ids[0]).joined.generation_id == generation + 1


def test_members_get_a_grace_period_after_the_process_was_frozen(world: World) -> None:
    """Their heartbeats may still be unread. A member that has sent nothing is removed."""
    ids, generation = world.stable(2)
    world.clock.time += 2 * SESSION_MS / 1000
    world.clock.run_due()
    assert world.state() == "Stable"
    assert world.heartbeat(ids[0], generation) is Code.NONE
    world.clock.advance(1)
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(ids[0], generation) is Code.REBALANCE_IN_PROGRESS
    assert world.heartbeat(ids[1], generation) is Code.UNKNOWN_MEMBER_ID


def test_a_commit_extends_the_session(world: World) -> None:
    [member], generation = world.stable()
    for _ in range(10):
        world.clock.advance(SESSION_MS / 2000)
        assert world.commit(member_id=member, generation=generation) == [Code.NONE]
    assert world.state() == "Stable"


# Leaving


def test_leaving(world: World) -> None:
    assert world.leave("m") == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])
    [member], _ = world.stable()
    assert world.leave("m") == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])
    assert world.leave("") == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])
    pending = world.member_id()
    assert world.leave(pending) == (Code.NONE, [Code.NONE])
    assert world.state() == "Stable"
    assert world.leave(member) == (Code.NONE, [Code.NONE])
    assert world.state() == "Empty"


# Many members


def test_five_thousand_members_outlive_departures_deaths_and_their_coordinator() -> None:
    """Half of them static, all of them cooperative."""
    options: dict[str, Any] = {"protocols": (("cooperative-sticky", b"meta"),)}
    world = _with_room(World())
    instances = [f"i{number}" for number in range(2_500)]
    ids = [world.member_id(**options) for _ in range(2_500)]
    joins = [world.join(instance=name, **options) for name in instances]
    joins += [world.join(member_id, **options) for member_id in ids]
    world.clock.advance(2 * DELAY_MS / 1000)
    assert {join.joined.generation_id for join in joins} == {1}
    assert sorted(len(join.joined.members) for join in joins) == [0] * 4_999 + [5_000]
    members, _ = world.finish(joins)
    assert len(members) == 5_000
    statics = {name: join.joined.member_id for name, join in zip(instances, joins, strict=False)}

    def beats(generation: int) -> set[Code]:
        static = {world.heartbeat(each, generation, instance=name) for name, each in statics.items()}
        return static | {world.heartbeat(each, generation) for each in ids}

    def all_join() -> list[Waiting]:
        rejoins = [world.join(each, instance=name, **options) for name, each in statics.items()]
        return rejoins + [world.join(each, **options) for each in ids]

    assert beats(1) == {Code.NONE}
    assert world.clock.pending < 10
    # Another coordinator knows them all, and static members come back to it without a rebalance.
    world = _with_room(world.restart())
    assert beats(1) == {Code.NONE}
    for name in instances[:2]:
        back = world.join(instance=name, **options)
        world.clock.run_due()
        assert back.joined.generation_id == 1
        assert world.sync(back.joined.member_id, 1).synced.assignment == b"share of " + statics[name].encode()
        statics[name] = back.joined.member_id
    # Some leave and some die. The others join again, and wait for the dead.
    world.coordinator.leave("g", [LeaveRequest(each, None, "test") for each in ids[:500]])
    ids = ids[1_000:]
    assert beats(1) == {Code.REBALANCE_IN_PROGRESS}
    joins = all_join()
    assert not any(join.done for join in joins)
    world.clock.advance(SESSION_MS / 1000 + 1)
    assert {join.joined.generation_id for join in joins} == {2}
    # The coordinator fails before the assignment is in the log: the next one begins with the generation before.
    world = _with_room(world.restart())
    assert beats(2) == {Code.ILLEGAL_GENERATION}
    joins = all_join()
    world.clock.advance(SESSION_MS / 1000 + 1)
    assert sorted(len(join.joined.members) for join in joins) == [0] * 3_999 + [4_000]
    (leader, *_), generation = world.finish(joins)
    assert generation == 2
    # The second rebalance of cooperative members, which the leader begins.
    of_leader = next((name for name, each in statics.items() if each == leader), None)
    world.join(leader, instance=of_leader, **options)
    joins = all_join()
    world.clock.run_due()
    assert world.finish(joins)[1] == 3
    assert beats(3) == {Code.NONE}
    # All of them are lost at once.
    world.clock.advance(REBALANCE_MS / 1000 + SESSION_MS / 1000)
    assert world.state() == "Empty"


def _with_room(world: World) -> World:
    """The records of so many members take more than the usual batch."""
    world.partition.most_bytes = 8 << 20
    return world
