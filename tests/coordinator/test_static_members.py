"""Static members of classic groups (KIP-345): those with a ``group.instance.id``."""

from __future__ import annotations

import pytest
from tests.coordinator.harness import DELAY_MS, World

from ottla_protocol.errors import ErrorCode as Code


@pytest.fixture
def world() -> World:
    return World()


def static(world: World, *instances: str, **options: int) -> dict[str, str]:
    """A stable group of static members: instance → member id, the leader first."""
    joins = {name: world.join(instance=name, **options) for name in instances}  # type: ignore[arg-type]
    world.wait_for_more(list(joins.values()))
    ids, _ = world.finish(list(joins.values()))
    by_id = {join.joined.member_id: name for name, join in joins.items()}
    return {by_id[member_id]: member_id for member_id in ids}


def test_a_static_member_joins_at_once_with_its_instance_in_the_id(world: World) -> None:
    members = static(world, "one")
    assert members["one"].startswith("one-")


@pytest.mark.parametrize("version", [5, 9])
def test_a_static_follower_returns_without_rebalance(world: World, version: int) -> None:
    members = static(world, "a", "b")
    leader, follower = members
    back = world.join(instance=follower, version=version)
    assert back.joined.generation_id == 1
    assert back.joined.leader == members[leader]
    assert back.joined.members == []
    assert not back.joined.skip_assignment
    assert world.state() == "Stable"
    new_id = back.joined.member_id
    assert new_id != members[follower]
    assert (
        world.sync(new_id, 1, instance=follower).synced.assignment
        == b"share of " + members[follower].encode()
    )
    # A member that still uses the old id is fenced.
    old = members[follower]
    assert world.heartbeat(old, 1, instance=follower) is Code.FENCED_INSTANCE_ID
    assert world.join(old, instance=follower).code is Code.FENCED_INSTANCE_ID
    assert world.sync(old, 1, instance=follower).code is Code.FENCED_INSTANCE_ID
    assert world.commit(member_id=old, instance=follower, generation=1) == [Code.FENCED_INSTANCE_ID]
    assert world.leave(old, instance=follower) == (Code.NONE, [Code.FENCED_INSTANCE_ID])
    assert world.heartbeat(old, 1) is Code.UNKNOWN_MEMBER_ID
    assert world.heartbeat(new_id, 1, instance=follower) is Code.NONE
    assert world.heartbeat(new_id, 1, instance="stranger") is Code.UNKNOWN_MEMBER_ID


def test_a_returning_static_leader_before_version_9_sees_another_leader(world: World) -> None:
    members = static(world, "a", "b")
    leader = next(iter(members))
    back = world.join(instance=leader, version=8)
    assert back.joined.leader == members[leader] != back.joined.member_id
    assert back.joined.members == []


def test_a_returning_static_leader_skips_the_assignment(world: World) -> None:
    members = static(world, "a", "b")
    leader = next(iter(members))
    back = world.join(instance=leader, version=9)
    assert back.joined.leader == back.joined.member_id
    assert back.joined.skip_assignment
    assert len(back.joined.members) == 2


def test_a_static_member_that_returns_with_other_protocols_rebalances(world: World) -> None:
    joins = [
        world.join(instance="a", protocols=(("x", b""), ("y", b""))),
        world.join(instance="b", protocols=(("x", b""), ("y", b""))),
    ]
    world.clock.advance(2 * DELAY_MS / 1000)
    assert joins[0].joined.protocol_name == "x"
    world.finish(joins)
    back = world.join(instance="b", protocols=(("y", b""),))
    assert not back.done
    assert world.state() == "PreparingRebalance"


def test_a_static_member_that_returns_while_completing_rebalances(world: World) -> None:
    joins = {name: world.join(instance=name) for name in ("a", "b", "c")}
    world.clock.advance(2 * DELAY_MS / 1000)
    ids = {name: join.joined.member_id for name, join in joins.items()}
    assert joins["a"].joined.leader == ids["a"]
    waiting = {name: world.sync(ids[name], 1) for name in ("b", "c")}
    back = world.join(instance="b")
    assert waiting["b"].code is Code.FENCED_INSTANCE_ID
    assert waiting["c"].code is Code.REBALANCE_IN_PROGRESS
    assert world.state() == "PreparingRebalance"
    others = [world.join(ids[name], instance=name) for name in ("a", "c")]
    assert {join.joined.generation_id for join in (back, *others)} == {2}


def test_a_static_member_that_joins_twice_while_preparing_fences_itself(world: World) -> None:
    members = static(world, "a", "b")
    leader, follower = members
    first = world.join(members[leader], instance=leader)
    second = world.join(instance=leader)
    assert first.code is Code.FENCED_INSTANCE_ID
    other = world.join(members[follower], instance=follower)
    assert second.joined.generation_id == other.joined.generation_id == 2


def test_a_static_member_that_cannot_be_written_keeps_its_old_id(world: World) -> None:
    members = static(world, "a", "b")
    world.partition.refuse = Code.NOT_LEADER_OR_FOLLOWER
    assert world.join(instance="b").code is Code.NOT_COORDINATOR
    world.partition.refuse = None
    assert world.heartbeat(members["b"], 1, instance="b") is Code.NONE


def test_a_rebalance_that_begins_while_a_static_member_is_written_answers_it(world: World) -> None:
    members = static(world, "a", "b")
    leader, follower = members
    world.partition.hold = True
    back = world.join(instance=follower)
    rejoin = world.join(members[leader], instance=leader)
    world.partition.release()
    assert back.joined.generation_id == rejoin.joined.generation_id == 2


def test_a_rebalance_waits_for_static_members_past_its_timeout(world: World) -> None:
    members = static(world, "a", "b", rebalance_ms=5_000, session_ms=60_000)
    leader, follower = members
    newcomer = world.new(rebalance_ms=5_000)
    world.clock.advance(5)
    # Only the newcomer has joined: both static members stay in the generation all the same.
    assert newcomer.joined.leader == newcomer.joined.member_id
    assert {m.group_instance_id for m in newcomer.joined.members} == {leader, follower, None}


def test_a_static_member_can_be_removed_by_its_instance(world: World) -> None:
    static(world, "a", "b")
    assert world.leave(instance="a") == (Code.NONE, [Code.NONE])
    assert world.leave(instance="a") == (Code.NONE, [Code.UNKNOWN_MEMBER_ID])
    assert world.state() == "PreparingRebalance"


def test_a_static_member_does_not_rebalance_within_its_session_and_does_after(world: World) -> None:
    members = static(world, "a", "b", session_ms=30_000)
    leader, follower = members
    for _ in range(29):
        world.clock.advance(1)
        assert world.heartbeat(members[leader], 1, instance=leader) is Code.NONE
    world.clock.advance(6)
    assert world.heartbeat(members[leader], 1, instance=leader) is Code.REBALANCE_IN_PROGRESS
    assert world.heartbeat(members[follower], 1, instance=follower) is Code.UNKNOWN_MEMBER_ID
