"""What an assignor is, and what it is told of a group's members."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Protocol

from ...types import TopicPartition

NO_GENERATION = -1
"""The generation of a member that has never been in one, or has lost it."""

Assignment = dict[str, list[TopicPartition]]
"""Member ids, each with its partitions."""


class RebalanceProtocol(IntEnum):
    """How a group changes hands (KIP-429); of several that can be spoken the highest is.

    ``EAGER``: every member gives up all it has before it joins again. ``COOPERATIVE``: members keep what they
    have; what has to move is given up after one rebalance and handed out in the next.
    """

    EAGER = 0
    COOPERATIVE = 1


@dataclass(frozen=True, slots=True)
class Subscription:
    """What a member said of itself when it joined.

    ``owned`` is what it has and need not give up, with ``generation`` the last one that it took part in
    (KIP-792; NO_GENERATION: not said). ``user_data`` is the assignor's own.
    """

    topics: Collection[str]
    user_data: bytes | None = None
    owned: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION
    rack: str | None = None
    instance_id: str | None = None


class Assignor(Protocol):
    """Divides partitions among a group's members; the leader's is asked. One object belongs to one member."""

    name: str
    """What members agree on by: the same name means the same rules and the same user data."""
    protocols: frozenset[RebalanceProtocol]

    def user_data(self, topics: Collection[str]) -> bytes | None:
        """What to tell the leader's assignor at the next join."""

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        """Each member's partitions; ``partitions`` has the number of every topic that exists.

        Every member is in the result, and every partition that somebody subscribes to at most once.
        """

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        """The member has been given these."""


def in_order(members: Mapping[str, Subscription]) -> list[str]:
    """Member ids in the order that Kafka's assignors go by: static members first, by their instance ids.

    Instance ids outlive restarts, so that static members get the same again.
    """

    def key(member: str) -> tuple[bool, str]:
        instance_id = members[member].instance_id
        return (True, member) if instance_id is None else (False, instance_id)

    return sorted(members, key=key)


def subscribed(partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> dict[str, int]:
    """The topics that exist and that somebody reads, in order."""
    wanted = {topic for subscription in members.values() for topic in subscription.topics}
    return {topic: partitions[topic] for topic in sorted(wanted) if partitions.get(topic, 0) > 0}
