"""The states of a classic group, as tables.

A group is *empty* when it has no members (it may have committed offsets). The first member to join, and every later
change of membership, makes it *prepare a rebalance*: it waits until each member has joined again, at most for the
longest rebalance timeout of its members. Then it *completes* the rebalance: the leader computes an assignment while the
others wait for it. With the assignment in the log the group is *stable*. A *dead* group has been removed from memory
and log.

Kafka: ``GroupMetadata.scala``, where states name their valid predecessors; here an event names the successor.
"""

from __future__ import annotations

from enum import Enum

from ottla_broker.coordinator import codes


class GroupState(Enum):
    """A state; its value is its name in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING = "PreparingRebalance"
    COMPLETING = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


class Event(Enum):
    """An event of a group as a whole."""

    PREPARE = "membership changes"
    JOINED = "the members of the next generation are known"
    EMPTIED = "no member is left for the next generation"
    ASSIGNED = "the leader's assignment is in the log"
    RETIRED = "deleted, expired, or led by another broker"


EMPTY, PREPARING, COMPLETING, STABLE, DEAD = GroupState

TRANSITIONS: dict[GroupState, dict[Event, GroupState]] = {
    EMPTY: {Event.PREPARE: PREPARING, Event.RETIRED: DEAD},
    PREPARING: {Event.JOINED: COMPLETING, Event.EMPTIED: EMPTY, Event.RETIRED: DEAD},
    COMPLETING: {Event.PREPARE: PREPARING, Event.ASSIGNED: STABLE, Event.RETIRED: DEAD},
    STABLE: {Event.PREPARE: PREPARING, Event.RETIRED: DEAD},
    DEAD: {Event.RETIRED: DEAD},
}

HEARTBEAT: dict[GroupState, int] = {
    EMPTY: codes.UNKNOWN_MEMBER_ID,
    PREPARING: codes.REBALANCE_IN_PROGRESS,
    COMPLETING: codes.NONE,
    STABLE: codes.NONE,
    DEAD: codes.COORDINATOR_NOT_AVAILABLE,
}
"""The answer to a heartbeat of a member of the current generation."""

SYNC: dict[GroupState, int] = {
    EMPTY: codes.UNKNOWN_MEMBER_ID,
    PREPARING: codes.REBALANCE_IN_PROGRESS,
    COMPLETING: codes.NONE,
    STABLE: codes.NONE,
    DEAD: codes.COORDINATOR_NOT_AVAILABLE,
}
"""The answer to a SyncGroup of a member of the current generation; with NONE it may have to wait."""

COMMIT: dict[GroupState, int] = {
    EMPTY: codes.NONE,
    PREPARING: codes.NONE,
    COMPLETING: codes.REBALANCE_IN_PROGRESS,
    STABLE: codes.NONE,
    DEAD: codes.COORDINATOR_NOT_AVAILABLE,
}
"""The answer to an OffsetCommit of a valid member, or of any client in an empty group.

While the rebalance completes, a member of the new generation has no partitions yet whose offsets it could commit.
"""

IN_GENERATION = frozenset({GroupState.COMPLETING, GroupState.STABLE})
"""The members of a generation are settled."""
CAN_REBALANCE = frozenset(state for state, events in TRANSITIONS.items() if Event.PREPARE in events)


class GroupStateError(Exception):
    """An event that the group's state does not allow: a defect of this broker, never of a client."""


class GroupStateMachine:
    """A group's state and since when. Owned by the loop thread."""

    __slots__ = ("_state", "state_since_ms")

    def __init__(self, state: GroupState, since_ms: int) -> None:
        self._state = state
        self.state_since_ms = since_ms
        """Wall-clock time of the last transition in ms; -1 where the log doesn't have it."""

    @property
    def state(self) -> GroupState:
        return self._state

    def fire(self, event: Event, now_ms: int) -> None:
        """Change the state. Raises GroupStateError when the table has no such transition."""
        next_state = TRANSITIONS[self._state].get(event)
        if next_state is None:
            raise GroupStateError(f"a group in state {self._state.value} can't handle: {event.value}")
        self._state = next_state
        self.state_since_ms = now_ms
