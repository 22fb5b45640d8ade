"""The states of a group of the consumer protocol, and of its members.

A group has no state machine of its own: its state follows from its epochs and its members. Kafka: ``ConsumerGroup``,
``MemberState``.
"""

from __future__ import annotations

from enum import Enum, IntEnum


class MemberState(IntEnum):
    """A member's distance from its target, with the codes of Kafka's records."""

    STABLE = 0
    """It has what the target of its epoch gives it."""
    UNREVOKED_PARTITIONS = 1
    """It has to give up partitions, and hasn't confirmed that it has."""
    UNRELEASED_PARTITIONS = 2
    """It waits for partitions that other members have."""
    UNKNOWN = 127
    """Written by a newer broker."""


class ModernState(Enum):
    """A group's state; its value is its name in ListGroups and ConsumerGroupDescribe."""

    EMPTY = "Empty"
    ASSIGNING = "Assigning"
    """Its target is older than its epoch."""
    RECONCILING = "Reconciling"
    """Not all members have reached the target."""
    STABLE = "Stable"
    DEAD = "Dead"


LEAVE_EPOCH = -1
LEAVE_STATIC_EPOCH = -2
"""A static member left and may come back within its session."""
JOIN_EPOCH = 0
