"""A member's state in its group, and what each response of the coordinator does to it; no I/O.

    UNJOINED ----> PREPARING ----> COMPLETING ----> STABLE
    in no          JoinGroup is    SyncGroup is     has its assignment
    generation     in flight       in flight

PREPARING can begin in every state; a member that loses its generation is UNJOINED. Java's AbstractCoordinator.
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
    """The request that a response answers."""

    JOIN = auto()
    SYNC = auto()
    HEARTBEAT = auto()
    COMMIT = auto()


class Reaction(Enum):
    """A member's reaction to a response."""

    GO_ON = auto()
    TAKE_ID = auto()
    """Join again at once, with the id in the response (KIP-394)."""
    JOIN_AGAIN = auto()
    """The group rebalances: give up partitions as the protocol says, and join again with the same id."""
    LOSE_GENERATION = auto()
    """The assignment is lost; the id is valid. Join again."""
    LOSE_ID = auto()
    """Like LOSE_GENERATION, and the id is lost."""
    FIND_COORDINATOR = auto()
    """Another broker is the coordinator, or will be soon: look it up and ask again."""
    WAIT = auto()
    """Ask again after a back-off."""
    GIVE_UP = auto()
    """Report the error to the application, and try again after its next poll."""
    FENCED = auto()
    """Another process has this static member's instance id: report the error and stop for good."""


_LOST = {
    ErrorCode.ILLEGAL_GENERATION: Reaction.LOSE_GENERATION,
    ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
    ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    ErrorCode.REBALANCE_IN_PROGRESS: Reaction.JOIN_AGAIN,
}
_ASKED = {
    ErrorCode.NONE: Reaction.GO_ON,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: Reaction.WAIT,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: Reaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: Reaction.FIND_COORDINATOR,
}
REACTIONS: dict[Step, dict[ErrorCode, Reaction]] = {
    Step.JOIN: _ASKED
    | {
        ErrorCode.MEMBER_ID_REQUIRED: Reaction.TAKE_ID,
        ErrorCode.UNKNOWN_MEMBER_ID: Reaction.LOSE_ID,
        ErrorCode.REBALANCE_IN_PROGRESS: Reaction.WAIT,
        ErrorCode.FENCED_INSTANCE_ID: Reaction.FENCED,
    },
    Step.SYNC: _ASKED | _LOST,
    Step.HEARTBEAT: _ASKED | _LOST,
    Step.COMMIT: _LOST,
}
"""By request. Other codes of a commit concern its caller only; all other codes mean GIVE_UP."""

LOSSES = frozenset({Reaction.LOSE_GENERATION, Reaction.LOSE_ID, Reaction.FENCED})
JOINED = frozenset({MemberState.COMPLETING, MemberState.STABLE})
"""States in a generation, in which heartbeats are due."""


class Generation(NamedTuple):
    """The generation in a member's requests, and the name of its assignor."""

    id: int = NO_GENERATION
    member_id: str = ""
    protocol: str | None = None


class MemberStateMachine:
    """A member's state. ``rejoin`` is the reason to join, None without one.

    ``unprepared``: partitions must be given up, as the protocol says, before the next JoinGroup; once per rebalance.
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
        """Whether other members may have the partitions."""
        return self.generation.id == NO_GENERATION

    def ask_to_rejoin(self, reason: str) -> None:
        """Join again soon; keeps an earlier reason."""
        if not self.rejoin:
            self.rejoin = reason

    def begin_join(self) -> Generation:
        """JoinGroup is being sent. Returns the generation for it; a reason to join remains until it is complete."""
        self.state = MemberState.PREPARING
        self.rejoin = self.rejoin or ""
        return self.generation

    def react(self, step: Step, code: ErrorCode, sent: Generation) -> Reaction:
        """Update the state for the response to a request of generation ``sent``; returns what to do.

        A response for an earlier generation doesn't concern the current one. Java compares the generations for losses
        only: its coordinator has a single connection, so no response comes after a later JoinGroup's.
        """
        reaction = REACTIONS[step].get(code, Reaction.GIVE_UP)
        stale = sent != self.generation
        loses = reaction in LOSSES
        if stale and step in (Step.HEARTBEAT, Step.COMMIT) and (loses or reaction is Reaction.JOIN_AGAIN):
            return Reaction.GO_ON
        if stale and loses and reaction is not Reaction.FENCED:
            reaction = Reaction.JOIN_AGAIN
        if (
            step is Step.HEARTBEAT
            and reaction is Reaction.JOIN_AGAIN
            and self.state is not MemberState.STABLE
        ):
            return Reaction.GO_ON  # the member is joining already
        reason = f"{step.name.lower()} failed with {code.name}"
        if reaction in LOSSES:
            self.lose(reason, keep_id=reaction is Reaction.LOSE_GENERATION)
        elif reaction is Reaction.JOIN_AGAIN or (
            reaction is not Reaction.GO_ON and step in (Step.JOIN, Step.SYNC)
        ):
            self.ask_to_rejoin(reason)
        return reaction

    def take_id(self, member_id: str) -> None:
        """The coordinator gave the member an id: join again with it."""
        self.generation = Generation(member_id=member_id)
        self.rejoin = "need to re-join with the given member-id"

    def complete_join(self, generation: Generation) -> bool:
        """JoinGroup succeeded. False if the member was removed meanwhile: join again."""
        if self.state is not MemberState.PREPARING:
            self.ask_to_rejoin("the member was removed from the group while it joined")
            return False
        self.state = MemberState.COMPLETING
        self.generation = generation
        return True

    def complete_sync(self, sent: Generation) -> bool:
        """SyncGroup succeeded. False if the generation was lost meanwhile: join again."""
        if self.state is not MemberState.COMPLETING or sent != self.generation:
            self.ask_to_rejoin("the member was removed from the group while it waited for its assignment")
            return False
        self.state = MemberState.STABLE
        self.rejoin = None
        self.unprepared = True
        return True

    def lose(self, reason: str, *, keep_id: bool = False) -> None:
        """The member is no longer in a generation."""
        self.state = MemberState.UNJOINED
        self.generation = Generation(member_id=self.generation.member_id if keep_id else "")
        self.rejoin = reason
        self.unprepared = True
