"""The pure parts of moves and deletions."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.cluster.deletion import NEXT, Happened, Stage
from ottla_broker.controller.cluster.reassignment import is_moving, origin, target, towards
from ottla_broker.store.keys import Assignment

replica_lists = st.lists(st.integers(1, 8), min_size=1, max_size=5, unique=True)


@given(replica_lists, replica_lists)
def test_a_move_starts_at_the_old_and_ends_at_the_new_replicas(before: list[int], after: list[int]) -> None:
    moving = towards(Assignment(before), after)
    assert sorted(origin(moving)) == sorted(before)
    assert target(moving) == after
    assert set(moving.replicas) == set(before) | set(after)
    assert len(set(moving.replicas)) == len(moving.replicas)
    assert is_moving(moving) == (set(before) != set(after))


@given(replica_lists, st.lists(replica_lists, min_size=1, max_size=4))
def test_a_redirected_move_keeps_its_origin(before: list[int], turns: list[list[int]]) -> None:
    moving = Assignment(before)
    for after in turns:
        moving = towards(moving, after)
        # The order of replicas may change, but none is lost.
        assert set(origin(moving)) == set(before)
        assert target(moving) == after
    stopped = towards(moving, origin(moving))
    assert set(stopped.replicas) == set(before)
    assert not is_moving(stopped)


def test_the_deletion_of_a_replica_knows_every_event_in_every_stage() -> None:
    for stage in Stage:
        for happened in Happened:
            assert (stage, happened) in NEXT


@given(st.lists(st.sampled_from(Happened)))
def test_a_replica_is_deleted_only_by_an_answer_and_stays_deleted(events: list[Happened]) -> None:
    stage = NEXT[None, Happened.BEGUN]
    for happened in events:
        before, stage = stage, NEXT[stage, happened]
        if before is Stage.DONE:
            assert stage is Stage.DONE
        elif stage is Stage.DONE:
            assert happened is Happened.ANSWERED


@pytest.mark.parametrize("begun", [Happened.BEGUN, Happened.GONE])
def test_a_deletion_begins_with_or_without_its_broker(begun: Happened) -> None:
    assert NEXT[None, begun] in (Stage.STARTED, Stage.HELD_UP)
