"""The state of a member whose partitions the broker assigns (KIP-848), and what each answer does to it; no I/O.

    UNJOINED ----> JOINED ----> LEAVING
    epoch 0        epoch > 0    gives up its partitions, then leaves

A member is LOST when the group goes on without it: other members may have its partitions, so it drops them at once
without committing, and then joins again. Java's ``AbstractMembershipManager``.
"""

from __future__ import annotations

from enum import Enum, auto

from ottla_protocol.errors import ErrorCode

JOIN_EPOCH = 0
LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2


class ConsumerMemberState(Enum):
    UNJOINED = auto()
    JOINED = auto()
    LOST = auto()
    """It has to drop its partitions before it joins again."""
    STOPPED = auto()
    """It failed, or the application stopped polling: it joins again after the next poll."""
    FENCED = auto()
    """Another process has its group_instance_id: it stops for good."""


class HeartbeatReaction(Enum):
    """A member's reaction to an answer to its heartbeat."""

    GO_ON = auto()
    JOIN_AGAIN = auto()
    """The group goes on without this member."""
    FIND_COORDINATOR = auto()
    WAIT = auto()
    """Ask again after a back-off."""
    GIVE_UP = auto()
    """Report the error to the application, and try again after its next poll."""
    FENCED = auto()


REACTIONS: dict[ErrorCode, HeartbeatReaction] = {
    ErrorCode.NONE: HeartbeatReaction.GO_ON,
    ErrorCode.FENCED_MEMBER_EPOCH: HeartbeatReaction.JOIN_AGAIN,
    ErrorCode.UNKNOWN_MEMBER_ID: HeartbeatReaction.JOIN_AGAIN,
    ErrorCode.COORDINATOR_NOT_AVAILABLE: HeartbeatReaction.FIND_COORDINATOR,
    ErrorCode.NOT_COORDINATOR: HeartbeatReaction.FIND_COORDINATOR,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS: HeartbeatReaction.WAIT,
    ErrorCode.FENCED_INSTANCE_ID: HeartbeatReaction.FENCED,
}
"""All other codes mean GIVE_UP."""

TRANSITIONS: dict[tuple[ConsumerMemberState, HeartbeatReaction], ConsumerMemberState] = {
    (ConsumerMemberState.UNJOINED, HeartbeatReaction.GO_ON): ConsumerMemberState.JOINED,
    (ConsumerMemberState.UNJOINED, HeartbeatReaction.JOIN_AGAIN): ConsumerMemberState.UNJOINED,
    (ConsumerMemberState.UNJOINED, HeartbeatReaction.GIVE_UP): ConsumerMemberState.STOPPED,
    (ConsumerMemberState.UNJOINED, HeartbeatReaction.FENCED): ConsumerMemberState.FENCED,
    (ConsumerMemberState.JOINED, HeartbeatReaction.JOIN_AGAIN): ConsumerMemberState.LOST,
    (ConsumerMemberState.JOINED, HeartbeatReaction.GIVE_UP): ConsumerMemberState.STOPPED,
    (ConsumerMemberState.JOINED, HeartbeatReaction.FENCED): ConsumerMemberState.FENCED,
}
"""The state after an answer; pairs that are left out change nothing."""


def reaction_to(code: ErrorCode, epoch: int) -> HeartbeatReaction:
    """The reaction to an answer. A group that is gone has lost this member; one it can't join is an error."""
    if code is ErrorCode.GROUP_ID_NOT_FOUND and epoch > JOIN_EPOCH:
        return HeartbeatReaction.JOIN_AGAIN
    return REACTIONS.get(code, HeartbeatReaction.GIVE_UP)
