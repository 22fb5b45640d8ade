"""Reassignment plans: complete, balanced, across racks, and minimal."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_cli.cluster.reassignment_plan import Assignment, Move, PlanError, Replicas, balanced, drained
from ottla_client.types import TopicPartition


def assignment(*replicas: Replicas) -> dict[TopicPartition, Replicas]:
    return {TopicPartition("t", number): each for number, each in enumerate(replicas)}


def after(current: Assignment, moves: list[Move]) -> dict[TopicPartition, Replicas]:
    for move in moves:
        assert move.old == current[move.partition] != move.new
    return {**current, **{move.partition: move.new for move in moves}}


def loads(assigned: Assignment, brokers: Mapping[int, object]) -> list[int]:
    counts = Counter(broker for replicas in assigned.values() for broker in replicas)
    assert counts.keys() <= brokers.keys()
    return sorted(counts[broker] for broker in brokers)


def test_a_new_broker_gets_its_share_and_nothing_else_moves() -> None:
    current = assignment((1, 2), (2, 1), (1, 2), (2, 1), (1, 2), (2, 1))
    moves = balanced(current, dict.fromkeys((1, 2, 3)))
    planned = after(current, moves)
    assert loads(planned, dict.fromkeys((1, 2, 3))) == [4, 4, 4]
    assert sum(len(move.adding) for move in moves) == 4
    assert sorted(Counter(replicas[0] for replicas in planned.values()).values()) == [2, 2, 2]


def test_a_balanced_cluster_stays() -> None:
    current = assignment((1, 2, 3), (2, 3, 1), (3, 1, 2))
    assert balanced(current, dict.fromkeys((1, 2, 3))) == []


def test_leaders_are_spread_without_moving_data() -> None:
    moves = balanced(assignment((1, 2, 3), (1, 2, 3), (1, 3, 2)), dict.fromkeys((1, 2, 3)))
    assert len(moves) == 2
    assert [move.adding for move in moves] == [(), ()]
    assert {move.new[0] for move in moves} == {2, 3}


def test_replicas_go_to_as_many_racks_as_can_be() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    moves = balanced(assignment((1, 2), (3, 4)), racks)
    planned = after(assignment((1, 2), (3, 4)), moves)
    for replicas in planned.values():
        assert {racks[broker] for broker in replicas} == {"a", "b"}
    assert loads(planned, racks) == [1, 1, 1, 1]
    assert sum(len(move.adding) for move in moves) == 2
    # A broker without a rack: none counts.
    assert balanced(assignment((1, 2), (3, 4)), {**racks, 4: None}) == []


def test_an_item_may_go_by_way_of_a_third_broker() -> None:
    """Broker 1 has two more than 3, and all its partitions are already on 3."""
    current = assignment((1, 3), (1, 2), (1, 2), (2, 1))
    planned = after(current, balanced(current, dict.fromkeys((1, 2, 3))))
    assert loads(planned, dict.fromkeys((1, 2, 3))) == [2, 3, 3]


def test_a_broker_is_drained_and_the_rest_stays() -> None:
    current = assignment((1, 2), (2, 3), (3, 1), (4, 2))
    moves = drained(current, dict.fromkeys((1, 2, 3, 4)), [1])
    assert [move.partition.partition for move in moves] == [0, 2]
    planned = after(current, moves)
    assert loads(planned, dict.fromkeys((2, 3, 4))) == [2, 3, 3]
    assert drained(current, dict.fromkeys((2, 3, 4, 5)), [5]) == []


def test_too_few_brokers() -> None:
    with pytest.raises(PlanError, match="t-0 has 3 replicas, but would have only 2 brokers"):
        drained(assignment((1, 2, 3)), dict.fromkeys((1, 2, 3)), [3])
    with pytest.raises(PlanError, match="only 1 broker"):
        balanced(assignment((1, 2)), {2: None})
    with pytest.raises(PlanError, match="t-0 has 1 replica, but no other broker can take it"):
        drained(assignment((1,)), {1: None}, [1])


@st.composite
def worlds(draw: st.DrawFn) -> tuple[dict[TopicPartition, Replicas], dict[int, str | None]]:
    """Partitions on brokers 0 to 9, some of which are running, perhaps with racks."""
    brokers = draw(st.sets(st.integers(0, 9), min_size=1))
    racked = draw(st.booleans())
    racks: dict[int, str | None] = {
        broker: draw(st.sampled_from("abc")) if racked else None for broker in sorted(brokers)
    }
    lists = st.lists(st.integers(0, 9), unique=True, min_size=1, max_size=min(4, len(brokers)))
    current = {
        TopicPartition("tu"[number % 2], number // 2): tuple(replicas)
        for number, replicas in enumerate(draw(st.lists(lists, max_size=30)))
    }
    return current, racks


@settings(deadline=None)
@given(worlds())
def test_any_plan(world: tuple[dict[TopicPartition, Replicas], dict[int, str | None]]) -> None:
    current, brokers = world
    moves = balanced(current, brokers)
    planned = after(current, moves)
    racked = None not in brokers.values()
    for tp, replicas in planned.items():
        assert len(replicas) == len(set(replicas)) == len(current[tp])
        assert set(replicas) <= brokers.keys()
        if racked:
            racks = {brokers[broker] for broker in replicas}
            assert len(racks) == min(len(replicas), len(set(brokers.values())))
    if not racked:
        counts = loads(planned, brokers)
        assert counts[-1] - counts[0] <= 1
        # No more is moved than what has to leave its broker or is above the share, but for rare chains.
        least = sum(
            max(0, sum(broker in replicas for replicas in current.values()) - counts[0])
            if broker in brokers
            else sum(broker in replicas for replicas in current.values())
            for broker in range(10)
        )
        assert sum(len(move.adding) for move in moves) <= 2 * least
    assert balanced(planned, brokers) == [], "a plan that is carried out leaves nothing to do"


@settings(deadline=None)
@given(worlds(), st.data())
def test_any_drain(
    world: tuple[dict[TopicPartition, Replicas], dict[int, str | None]], data: st.DataObject
) -> None:
    current, brokers = world
    current = {tp: replicas for tp, replicas in current.items() if set(replicas) <= brokers.keys()}
    leaving = data.draw(st.sampled_from(sorted(brokers)))
    most = max(map(len, current.values()), default=0)
    if len(brokers) - 1 < most and any(
        leaving in replicas and len(replicas) == len(brokers) for replicas in current.values()
    ):
        with pytest.raises(PlanError):
            drained(current, brokers, [leaving])
        return
    moves = drained(current, brokers, [leaving])
    assert {move.partition for move in moves} == {tp for tp, r in current.items() if leaving in r}
    for replicas in after(current, moves).values():
        assert leaving not in replicas
        assert len(set(replicas)) == len(replicas)
