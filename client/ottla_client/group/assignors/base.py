"""The interface of assignors."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from ...types import TopicPartition

NO_GENERATION = -1
"""The generation of a member that is in none."""

Assignment = dict[str, list[TopicPartition]]
"""The partitions of each member id."""


class RebalanceProtocol(IntEnum):
    """How members give up partitions (KIP-429). A member uses the highest that its assignors share.

    ``EAGER``: every member gives up all partitions before it joins again. ``COOPERATIVE``: members keep their
    partitions; those that move are given up after one rebalance and assigned in the next.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """The metadata that a member sends when it joins.

    ``owned`` are the partitions that it keeps, ``generation`` is the last one it was part of (KIP-792; NO_GENERATION if
    it doesn't say). ``user_data`` belongs to the assignor.
    """

    topics: Collection[str]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


class Assignor(Protocol):
    """Divides partitions among a group's members, in its leader. One object belongs to one member."""

    name: str
    """Members agree on an assignor by name: the same name means the same rules and user data."""
    protocols: frozenset[RebalanceProtocol]

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """User data for the leader's assignor, sent at the next join."""

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        """Each member's partitions; ``partitions`` has the number of partitions of every existing topic.

        The result has every member, and every partition at most once.
        """

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """The member was assigned these partitions."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in the order of Kafka's assignors: static members first, by instance id.

    Instance ids survive restarts, so that static members get the same partitions again.
    """

    def key(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return (True, member) if instance_id is None else (False, instance_id)

    return sorted(members, key=key)


def subscribed(partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> dict[str, int]:
    """The existing topics that members subscribe to, in order."""
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    return {topic: partitions[topic] for topic in sorted(wanted) if partitions.get(topic, 0) > 0}
