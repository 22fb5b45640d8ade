"""What clients may have a coordinator remember."""

from __future__ import annotations

from tests.coordinator.harness import DELAY_MS, World
from tests.coordinator.transactions import TransactionWorld

from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_protocol.errors import ErrorCode as Code


def test_a_group_too_many_is_refused_and_those_that_exist_are_served() -> None:
    world = World(max_groups=2)
    world.stable(group="a")
    assert world.commit(group="b") == [Code.NONE]
    assert world.join(group="c").code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="c", version=3).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.commit(group="c") == [Code.GROUP_MAX_SIZE_REACHED]
    assert world.commit_transactional((7, 0), group="c") == [Code.GROUP_MAX_SIZE_REACHED]
    assert world.commit(43, group="b") == [Code.NONE]
    assert world.join("unknown", group="c").code is Code.UNKNOWN_MEMBER_ID
    assert world.join(group="a").code is Code.MEMBER_ID_REQUIRED


def test_the_oldest_of_too_many_unused_member_ids_is_dropped() -> None:
    world = World(max_pending_members=3)
    used = world.member_id()
    joining = world.join(used)
    ids = [world.member_id(group=f"g{number}") for number in range(4)]
    world.clock.advance(DELAY_MS / 1000)
    assert joining.joined.member_id == used
    assert world.join(ids[0], group="g0").code is Code.UNKNOWN_MEMBER_ID
    for number in (1, 2, 3):
        assert not world.join(ids[number], group=f"g{number}").done


def test_metadata_of_all_members_is_limited() -> None:
    large = (("range", bytes(40_000)),)
    world = World(max_metadata_bytes=100_000)
    [first], _ = world.stable(group="a", protocols=large)
    [second], generation = world.stable(group="b", protocols=large)
    assert world.join(group="c", protocols=large).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="b", protocols=large).code is Code.GROUP_MAX_SIZE_REACHED
    # Those with little, and those that are there, go on.
    assert world.join(group="c").code is Code.MEMBER_ID_REQUIRED
    assert world.join(second, group="b", protocols=large).joined.generation_id == generation + 1
    world.leave(first, group="a")
    assert world.join(group="c", protocols=large).code is Code.MEMBER_ID_REQUIRED


def test_a_transactional_id_too_many_is_refused() -> None:
    world = TransactionWorld(max_ids=2)
    first = world.producer("a")
    world.producer("b")
    [refused] = world.init("c")
    assert refused.error == Code.POLICY_VIOLATION
    again = world.producer("a")
    assert (again.id, again.epoch) == (first.id, first.epoch + 1)


def test_deadlines_that_are_removed_leave_nothing_behind() -> None:
    world = World()
    missed: list[Deadline] = []
    deadlines = Deadlines(world.clock, missed.append)
    kept = Deadline()
    deadlines.set(kept, 1800)
    for _ in range(20_000):
        gone = Deadline()
        deadlines.set(gone, 1800)
        deadlines.clear(gone)
    assert len(deadlines) < 3_000
    again = Deadline()
    deadlines.set(again, 1800)
    deadlines.clear(again)
    deadlines.set(again, 1800)
    world.clock.advance(1800)
    assert missed == [kept, again]
