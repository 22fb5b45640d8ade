"""The group's state machine, the hash that places groups, and the deadlines."""

from __future__ import annotations

import pytest
from tests.support.clock import FakeClock

from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.group.group import subscribed_topics
from ottla_broker.coordinator.group.states import (
    CAN_REBALANCE,
    COMMIT,
    HEARTBEAT,
    SYNC,
    TRANSITIONS,
    Event,
    GroupState,
    GroupStateError,
    GroupStateMachine,
)
from ottla_protocol.errors import ProtocolError
from ottla_protocol.partitioning import java_string_hash, partition_for

E, P, C, S, D = (
    GroupState.EMPTY,
    GroupState.PREPARING,
    GroupState.COMPLETING,
    GroupState.STABLE,
    GroupState.DEAD,
)


# The valid predecessors of each state, as Kafka's GroupMetadata declares them.
@pytest.mark.parametrize(
    ("state", "predecessors"), [(P, {S, C, E}), (C, {P}), (S, {C}), (D, {S, P, C, E, D}), (E, {P})]
)
def test_transitions_are_kafkas(state: GroupState, predecessors: set[GroupState]) -> None:
    assert {before for before, events in TRANSITIONS.items() if state in events.values()} == predecessors


def test_every_state_has_an_answer_in_each_table() -> None:
    for table in (TRANSITIONS, HEARTBEAT, SYNC, COMMIT):
        assert set(table) == set(GroupState)
    assert {E, C, S} == CAN_REBALANCE


def test_an_invalid_event_is_an_error_and_changes_nothing() -> None:
    for state, events in TRANSITIONS.items():
        for event in set(Event) - set(events):
            machine = GroupStateMachine(state, 5)
            with pytest.raises(GroupStateError):
                machine.fire(event, 9)
            assert (machine.state, machine.state_since_ms) == (state, 5)


def test_a_transition_notes_the_time() -> None:
    machine = GroupStateMachine(E, 5)
    machine.fire(Event.PREPARE, 9)
    assert (machine.state, machine.state_since_ms) == (P, 9)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("", 0),
        ("a", 97),
        ("polygenelubricants", -0x80000000),
        ("hello", 99162322),
        ("é", 233),
        ("😀", 1772899),
    ],
)
def test_hash_is_javas(text: str, value: int) -> None:
    assert java_string_hash(text) == value


def test_the_one_number_without_absolute_value_goes_to_partition_0() -> None:
    assert partition_for("polygenelubricants", 50) == 0
    assert partition_for("hello", 50) == 99162322 % 50


class Item(Deadline):
    __slots__ = ("name",)

    def __init__(self, name: str) -> None:
        super().__init__()
        self.name = name


def test_only_a_deadline_that_is_not_moved_is_missed() -> None:
    clock = FakeClock()
    missed: list[tuple[str, float]] = []
    deadlines = Deadlines(clock, lambda item: missed.append((item.name, clock.time - 1000)))  # type: ignore[attr-defined]
    a, b = Item("a"), Item("b")
    deadlines.set(a, 10)
    deadlines.set(b, 10)
    for _ in range(20):
        clock.advance(3)
        deadlines.set(b, 10)
    assert missed == [("a", 10)]
    clock.advance(10)
    assert missed == [("a", 10), ("b", 70)]


def test_a_deadline_can_be_moved_forward_cleared_and_set_again() -> None:
    clock = FakeClock()
    missed: list[float] = []
    deadlines = Deadlines(clock, lambda _: missed.append(clock.time - 1000))
    item = Item("a")
    deadlines.set(item, 300)
    deadlines.set(item, 10)
    clock.advance(20)
    assert missed == [10]
    deadlines.set(item, 10)
    deadlines.clear(item)
    clock.advance(400)
    assert missed == [10]
    deadlines.set(item, 1)
    clock.advance(2)
    assert missed == [10, 421]


def test_many_missed_deadlines_let_others_run() -> None:
    clock = FakeClock()
    order: list[str] = []

    def missed(item: Deadline) -> None:
        assert isinstance(item, Item)
        order.append(item.name)
        clock.time += 0.01

    deadlines = Deadlines(clock, missed)
    for name in "abc":
        deadlines.set(Item(name), 10)
    clock.call_later(10, lambda: order.append("another"))
    clock.advance(11)
    assert order == ["a", "another", "b", "c"]


def test_many_heartbeats_need_one_timer() -> None:
    clock = FakeClock()
    deadlines = Deadlines(clock, lambda _: None)
    items = [Item(str(number)) for number in range(100)]
    for _ in range(50):
        for item in items:
            deadlines.set(item, 10)
        clock.advance(0.1)
    assert clock.pending == 1


def test_topics_of_a_subscription_of_any_version() -> None:
    """All versions begin with version 0, and some clients write no more than that in a later one."""
    body = b"\x00\x00\x00\x02\x00\x01a\x00\x02bc" + b"\xff\xff\xff\xff"
    for version in (0, 1, 3, 9):
        for rest in (b"", b"anything that follows"):
            assert list(subscribed_topics(version.to_bytes(2, "big") + body + rest)) == ["a", "bc"]


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00",
        b"\x00\x00\x7f\xff\xff\xff",
        b"\xff\xff\0\0\0\0",
        b"\0\0\0\0\0\1\0\5ab",
        b"\0\0\0\0\0\1\0\1\xff\xff\xff\xff\xff",
        b"\0\0\0\0\0\1\0\1a",
    ],
)
def test_a_subscription_that_cannot_be_read_is_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        subscribed_topics(data)
