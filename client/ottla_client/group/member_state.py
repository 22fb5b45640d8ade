"""Where a member stands with its group, and what every answer of the coordinator means for it; no I/O.

    UNJOINED ----> PREPARING ----> COMPLETING ----> STABLE
    in no          JoinGroup is    SyncGroup is     has its assignment
    generation     on its way      on its way

PREPARING may be begun from everywhere; who loses the generation is UNJOINED. Java's AbstractCoordinator.
"""

from __future__ import annotations

from enum import Enum, auto
from typing import NamedTuple

from ottla_protocol.errors import ErrorCode

from .assignors.base import NO_GENERATION


class MemberState(Enum):
    UNJOINED = auto()
    PREPARING = auto()
    COMPLETING = auto()
    STABLE = auto()


class Step(Enum):
    """What was asked of the coordinator."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()


class Reaction(Enum):
    """What an answer makes a member do."""

    GO_ON = auto()
    TAKE_ID = auto()
    """Join again at once, with the id that the answer has (KIP-394)."""
    JOIN_AGAIN = auto()
    """The group rebalances: give up what the protocol asks for, and join again with the same id."""
    LOSE_GENERATION = auto()
    """What the member had is lost; its id is still good. Join again."""
    LOSE_ID = auto()
    """As LOSE_GENERATION, with the id lost as well."""
    FIND_COORDINATOR = auto()
    """Another broker is in charge now, or soon: look for it, and ask again."""
    WAIT = auto()
    """Ask again in a while."""
    GIVE_UP = auto()
    """Tell the application, and try again when it has been told."""
    FENCED = auto()
    """Another process has taken the place of this static member: tell the application, and stop for good."""


REACTIONS: dict[Step, dict[ErrorCode, Reaction]] = {
    Step.JOIN: {
        ErrorCode.NONE: Reaction.GO_ON,
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
    Step.SYNC: {
        ErrorCode.NONE: Reaction.GO_ON,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN_AGAIN,
        ErrorCode.ILLEGAL_GENERATION: Reaction.LOSE_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
    Step.HEARTBEAT: {
        ErrorCode.NONE: Reaction.GO_ON,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN_AGAIN,
        ErrorCode.ILLEGAL_GENERATION: Reaction.LOSE_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
        ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
    Step.COMMIT: {
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN_AGAIN,
        ErrorCode.ILLEGAL_GENERATION: Reaction.LOSE_GENERATION,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
}
"""By what was asked. Of codes that aren't here, a commit's are its caller's alone; all others are GIVE_UP."""

LOSSES = frozenset({Reaction.LOSE_GENERATION, Reaction.LOSE_ID, Reaction.FENCED})
JOINED = frozenset({MemberState.COMPLETING, MemberState.STABLE})
"""In a generation, so that heartbeats are due."""


class Generation(NamedTuple):
    """What a member signs its requests with, and the assignor that the generation goes by."""

    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str | None = None


class MemberStateMachine:
    """A member's state. ``rejoin`` is why it has to join (None: it needn't).

    ``unprepared``: what the protocol asks for has to be given up before the next JoinGroup; done once a rebalance.
    """

    def __init__(self) -> None:
        self.state = MemberState.UNJOINED
        self.generation = Generation()
        self.rejoin: str | None = ""
        self.unprepared = True

    @property
    def joined(self) -> bool:
        return self.state in JOINED

    @property
    def lost(self) -> bool:
        """Whether what the member had may be another's by now."""
        return self.generation.id == NO_GENERATION

    def ask_to_rejoin(self, reason: str) -> None:
        """Join again soon; the reason that was first given stays."""
        if not self.rejoin:
            self.rejoin = reason

    def begin_join(self) -> Generation:
        """JoinGroup is being sent; what it is signed with. Until all is done there is a reason to join."""
        self.state = MemberState.PREPARING
        self.rejoin = self.rejoin or ""
        return self.generation

    def react(self, step: Step, code: ErrorCode, sent: Generation) -> Reaction:
        """What an answer to a request that was signed with ``sent`` means; the state is changed by it.

        An answer for a generation that the member has left since says nothing of the new one.
        """
        reaction = REACTIONS[step].get(code, Reaction.GIVE_UP)
        stale = sent != self.generation
        loses = reaction in LOSSES
        if stale and loses and step in (Step.HEARTBEAT, Step.COMMIT):
            return Reaction.GO_ON
        if stale and loses and reaction is not Reaction.FENCED:
            reaction = Reaction.JOIN_AGAIN
        if (
            step is Step.HEARTBEAT
            and reaction is Reaction.JOIN_AGAIN
            and self.state is not MemberState.STABLE
        ):
            return Reaction.GO_ON  # the member joins already
        reason = f"{step.name.lower()} failed with {code.name}"
        if reaction in LOSSES:
            self.lose(reason, keep_id=reaction is Reaction.LOSE_GENERATION)
        elif reaction is Reaction.JOIN_AGAIN or (
            reaction is not Reaction.GO_ON and step in (Step.JOIN, Step.SYNC)
        ):
            self.ask_to_rejoin(reason)
        return reaction

    def take_id(self, member_id: str) -> None:
        """The coordinator wants the member to come back with an id that it has made for it."""
        self.generation = Generation(member_id=member_id)
        self.rejoin = "need to re-join with the given member-id"

    def complete_join(self, generation: Generation) -> bool:
        """JoinGroup went well. False where the member was told in between that it is out: join again."""
        if self.state is not MemberState.PREPARING:
            self.ask_to_rejoin("the member was removed from the group while it joined")
            return False
        self.state = MemberState.COMPLETING
        self.generation = generation
        return True

    def complete_sync(self, sent: Generation) -> bool:
        """SyncGroup went well. False where the generation was lost in between: join again."""
        if self.state is not MemberState.COMPLETING or sent != self.generation:
            self.ask_to_rejoin("the member was removed from the group while it waited for its assignment")
            return False
        self.state = MemberState.STABLE
        self.rejoin = None
        self.unprepared = True
        return True

    def lose(self, reason: str, *, keep_id: bool = False) -> None:
        """The member is in no generation any more."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_id else "")
        self.rejoin = reason
        self.unprepared = True
