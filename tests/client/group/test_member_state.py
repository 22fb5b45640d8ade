"""A member's state machine: every response in every state, and its invariants."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.support.depth import examples

from ottla_client.group.assignors import NO_GENERATION
from ottla_client.group.member_state import (
    LOSSES,
    REACTIONS,
    Generation,
    MemberState,
    MemberStateMachine,
    Reaction,
    Step,
)
from ottla_protocol.errors import ErrorCode

FIRST = Generation(1, "me", "range")


def stable() -> MemberStateMachine:
    machine = MemberStateMachine()
    machine.begin_join()
    assert machine.complete_join(FIRST)
    assert machine.complete_sync(FIRST)
    return machine


def test_a_join_from_the_beginning() -> None:
    machine = MemberStateMachine()
    assert machine.rejoin is not None
    assert machine.lost
    sent = machine.begin_join()
    assert machine.react(Step.JOIN, ErrorCode.MEMBER_ID_REQUIRED, sent) is Reaction.TAKE_ID
    machine.take_id("me")
    sent = machine.begin_join()
    assert sent == Generation(NO_GENERATION, "me", None)
    assert machine.react(Step.JOIN, ErrorCode.NONE, sent) is Reaction.GO_ON
    assert machine.complete_join(FIRST)
    assert machine.state is MemberState.COMPLETING
    assert machine.complete_sync(FIRST)
    assert (machine.state, machine.rejoin) == (MemberState.STABLE, None)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
@pytest.mark.parametrize("step", [Step.HEARTBEAT, Step.COMMIT, Step.SYNC])
def test_what_loses_the_generation(step: Step, code: ErrorCode, member_id: str) -> None:
    machine = stable()
    assert machine.react(step, code, FIRST) in LOSSES
    assert machine.state is MemberState.UNJOINED
    assert machine.generation == Generation(NO_GENERATION, member_id, None)
    assert machine.rejoin
    assert machine.unprepared


@pytest.mark.parametrize("step", [Step.HEARTBEAT, Step.COMMIT])
@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.FENCED_INSTANCE_ID,
    ],
)
def test_an_answer_for_an_older_generation_changes_nothing(step: Step, code: ErrorCode) -> None:
    machine = stable()
    assert machine.react(step, code, Generation(0, "me", "range")) is Reaction.GO_ON
    assert (machine.state, machine.generation, machine.rejoin) == (MemberState.STABLE, FIRST, None)


def test_a_heartbeat_reports_a_rebalance_only_to_a_stable_member() -> None:
    machine = stable()
    assert machine.react(Step.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, FIRST) is Reaction.JOIN_AGAIN
    assert machine.state is MemberState.STABLE
    assert machine.rejoin
    sent = machine.begin_join()
    assert machine.react(Step.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, sent) is Reaction.GO_ON


def test_a_member_that_was_removed_while_it_joined_joins_again() -> None:
    machine = stable()
    sent = machine.begin_join()
    machine.react(Step.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, sent)
    assert not machine.complete_join(Generation(2, "me", "range"))
    sent = machine.begin_join()
    assert sent.member_id == ""
    second = Generation(3, "you", "range")
    assert machine.complete_join(second)
    machine.react(Step.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION, second)
    assert not machine.complete_sync(second)
    assert machine.rejoin


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_its_reaction(step: Step, code: ErrorCode) -> None:
    machine = stable()
    reaction = machine.react(step, code, FIRST)
    assert reaction is REACTIONS[step].get(code, Reaction.GIVE_UP)
    assert machine.lost == (reaction in LOSSES)
    if step in (Step.JOIN, Step.SYNC) and code is not ErrorCode.NONE:
        assert machine.rejoin


class Life(RuleBasedStateMachine):
    """Any answers in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.machine = MemberStateMachine()
        self.sent: list[Generation] = []
        self.ids = 0

    @rule()
    def begin(self) -> None:
        self.sent.append(self.machine.begin_join())

    @precondition(lambda self: self.sent)
    @rule(step=st.sampled_from(list(Step)), code=st.sampled_from(list(ErrorCode)), data=st.data())
    def answer(self, step: Step, code: ErrorCode, data: st.DataObject) -> None:
        before = self.machine.generation
        sent = data.draw(st.sampled_from(self.sent))
        reaction = self.machine.react(step, code, sent)
        if reaction is Reaction.TAKE_ID:
            self.machine.take_id("given")
        elif reaction is Reaction.GO_ON:
            assert self.machine.generation == before

    @precondition(lambda self: self.machine.state is MemberState.PREPARING)
    @rule()
    def join(self) -> None:
        self.ids += 1
        generation = Generation(self.ids, f"member-{self.ids}", "range")
        assert self.machine.complete_join(generation)
        self.sent.append(generation)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        may = self.machine.state is MemberState.COMPLETING and sent == self.machine.generation
        assert self.machine.complete_sync(sent) is may

    @rule()
    def leave(self) -> None:
        self.machine.lose("leaving")

    @invariant()
    def who_is_in_a_generation_has_one(self) -> None:
        if self.machine.joined and not self.machine.lost:
            assert self.machine.generation.member_id
            assert self.machine.generation.protocol

    @invariant()
    def only_who_is_stable_may_stay(self) -> None:
        if self.machine.state in (MemberState.UNJOINED, MemberState.COMPLETING):
            assert self.machine.rejoin is not None


Life.TestCase.settings = settings(max_examples=examples(30), stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
