"""Where a member stands, by itself: every answer in every state, and what must hold throughout."""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from ottla_client.group.assignors import NO_GENERATION
from ottla_client.group.machine import (
    LOSSES,
    REACTIONS,
    Generation,
    Reaction,
    Standing,
    State,
    Step,
)
from ottla_protocol.errors import ErrorCode

FIRST = Generation(1, "me", "range")


def stable() -> Standing:
    standing = Standing()
    standing.begin_join()
    assert standing.complete_join(FIRST)
    assert standing.complete_sync(FIRST)
    return standing


def test_a_join_from_the_beginning() -> None:
    standing = Standing()
    assert standing.rejoin is not None
    assert standing.lost
    sent = standing.begin_join()
    assert standing.react(Step.JOIN, ErrorCode.MEMBER_ID_REQUIRED, sent) is Reaction.TAKE_ID
    standing.take_id("me")
    sent = standing.begin_join()
    assert sent == Generation(NO_GENERATION, "me", None)
    assert standing.react(Step.JOIN, ErrorCode.NONE, sent) is Reaction.GO_ON
    assert standing.complete_join(FIRST)
    assert standing.state is State.COMPLETING
    assert standing.complete_sync(FIRST)
    assert (standing.state, standing.rejoin) == (State.STABLE, None)


@pytest.mark.parametrize(
    ("code", "member_id"), [(ErrorCode.ILLEGAL_GENERATION, "me"), (ErrorCode.UNKNOWN_MEMBER_ID, "")]
)
@pytest.mark.parametrize("step", [Step.HEARTBEAT, Step.COMMIT, Step.SYNC])
def test_what_loses_the_generation(step: Step, code: ErrorCode, member_id: str) -> None:
    standing = stable()
    assert standing.react(step, code, FIRST) in LOSSES
    assert standing.state is State.UNJOINED
    assert standing.generation == Generation(NO_GENERATION, member_id, None)
    assert standing.rejoin
    assert standing.unprepared


@pytest.mark.parametrize("step", [Step.HEARTBEAT, Step.COMMIT])
@pytest.mark.parametrize(
    "code", [ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID]
)
def test_an_answer_for_an_older_generation_changes_nothing(step: Step, code: ErrorCode) -> None:
    standing = stable()
    assert standing.react(step, code, Generation(0, "me", "range")) is Reaction.GO_ON
    assert (standing.state, standing.generation, standing.rejoin) == (State.STABLE, FIRST, None)


def test_a_heartbeat_tells_of_a_rebalance_only_who_does_not_know_yet() -> None:
    standing = stable()
    assert standing.react(Step.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, FIRST) is Reaction.JOIN_AGAIN
    assert standing.state is State.STABLE
    assert standing.rejoin
    sent = standing.begin_join()
    assert standing.react(Step.HEARTBEAT, ErrorCode.REBALANCE_IN_PROGRESS, sent) is Reaction.GO_ON


def test_a_member_that_was_removed_while_it_joined_joins_again() -> None:
    standing = stable()
    sent = standing.begin_join()
    standing.react(Step.HEARTBEAT, ErrorCode.UNKNOWN_MEMBER_ID, sent)
    assert not standing.complete_join(Generation(2, "me", "range"))
    sent = standing.begin_join()
    assert sent.member_id == ""
    second = Generation(3, "you", "range")
    assert standing.complete_join(second)
    standing.react(Step.HEARTBEAT, ErrorCode.ILLEGAL_GENERATION, second)
    assert not standing.complete_sync(second)
    assert standing.rejoin


@pytest.mark.parametrize("step", list(Step))
@pytest.mark.parametrize("code", list(ErrorCode))
def test_every_code_has_its_reaction(step: Step, code: ErrorCode) -> None:
    standing = stable()
    reaction = standing.react(step, code, FIRST)
    assert reaction is REACTIONS[step].get(code, Reaction.GIVE_UP)
    assert standing.lost == (reaction in LOSSES)
    if step in (Step.JOIN, Step.SYNC) and code is not ErrorCode.NONE:
        assert standing.rejoin


class Life(RuleBasedStateMachine):
    """Any answers in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.standing = Standing()
        self.sent: list[Generation] = []
        self.ids = 0

    @rule()
    def begin(self) -> None:
        self.sent.append(self.standing.begin_join())

    @precondition(lambda self: self.sent)
    @rule(step=st.sampled_from(list(Step)), code=st.sampled_from(list(ErrorCode)), data=st.data())
    def answer(self, step: Step, code: ErrorCode, data: st.DataObject) -> None:
        before = self.standing.generation
        sent = data.draw(st.sampled_from(self.sent))
        reaction = self.standing.react(step, code, sent)
        if reaction is Reaction.TAKE_ID:
            self.standing.take_id("given")
        elif reaction is Reaction.GO_ON:
            assert self.standing.generation == before

    @precondition(lambda self: self.standing.state is State.PREPARING)
    @rule()
    def join(self) -> None:
        self.ids += 1
        generation = Generation(self.ids, f"member-{self.ids}", "range")
        assert self.standing.complete_join(generation)
        self.sent.append(generation)

    @precondition(lambda self: self.sent)
    @rule(data=st.data())
    def sync(self, data: st.DataObject) -> None:
        sent = data.draw(st.sampled_from(self.sent))
        may = self.standing.state is State.COMPLETING and sent == self.standing.generation
        assert self.standing.complete_sync(sent) is may

    @rule()
    def leave(self) -> None:
        self.standing.lose("leaving")

    @invariant()
    def who_is_in_a_generation_has_one(self) -> None:
        if self.standing.joined and not self.standing.lost:
            assert self.standing.generation.member_id
            assert self.standing.generation.protocol

    @invariant()
    def only_who_is_stable_may_stay(self) -> None:
        if self.standing.state in (State.UNJOINED, State.COMPLETING):
            assert self.standing.rejoin is not None


Life.TestCase.settings = settings(max_examples=60, stateful_step_count=30, deadline=None)
TestLife = Life.TestCase
