"""The assignors "sticky" and "cooperative-sticky": even assignments with few moves (KIP-54, KIP-429).

The user data that members send, big-endian:

    sticky               array of (string topic, array of int32 partition), int32 generation;
                         old clients omit the generation
    cooperative-sticky   int32 generation
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Collection, Mapping
from contextlib import suppress

from ottla_protocol.errors import ProtocolError
from ottla_protocol.messages.consumer_protocol import TopicPartition as TopicPartitions
from ottla_protocol.schema import Int32, Message, field

from ...types import TopicPartition
from ..consumer_protocol import grouped, spread
from .base import NO_GENERATION, Assignment, RebalanceProtocol, Subscription, subscribed
from .constrained import assign_constrained
from .general import assign_general
from .previous_owners import Claim, previous_owners


class StickyUserData(Message, versions="0-1"):
    """A member's last partitions, and the generation of that assignment."""

    previous_assignment: list[TopicPartitions] = field(default_factory=list)
    generation: Int32 = field("1+", default=NO_GENERATION)


class CooperativeUserData(Message, versions="0"):
    """A member's last generation; newer clients send it in the subscription itself (KIP-792)."""

    generation: Int32 = field(default=NO_GENERATION)


class _Sticky(ABC):
    """The common base. Java's AbstractStickyAssignor without rack matching."""

    def __init__(self) -> None:
        self._newest = NO_GENERATION  # the highest generation that members have sent

    @abstractmethod
    def _claim(self, subscription: Subscription) -> Claim:
        """The partitions that the member says it had."""

    def _divide(
        self, partitions: Mapping[str, int], members: Mapping[str, Subscription]
    ) -> tuple[Assignment, dict[TopicPartition, str] | None]:
        """The assignment, and the partitions that change owners if that is known already."""
        topics = subscribed(partitions, members)
        owned, self._newest = previous_owners(topics, members, self._claim, self._newest)
        wanted = {frozenset(subscription.topics) for subscription in members.values()}
        if len(wanted) == 1:
            return assign_constrained(topics, owned)
        return assign_general(topics, members, owned), None


class StickyAssignor(_Sticky):
    """Members give up all partitions at a rebalance, and get most of them back."""

    name = "sticky"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def __init__(self) -> None:
        super().__init__()
        self._last: tuple[Collection[TopicPartition], int] | None = None

    def user_data(self, topics: Collection[str]) -> bytes | None:
        if self._last is None:
            return None
        partitions, generation = self._last
        return StickyUserData(previous_assignment=grouped(partitions), generation=generation).encode(1)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        return self._divide(partitions, members)[0]

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        self._last = (partitions, generation)

    def _claim(self, subscription: Subscription) -> Claim:
        # Ignore the owned partitions in the subscription: an eager member has given them up.
        for version in (1, 0):
            with suppress(ProtocolError):
                read = StickyUserData.decode(subscription.user_data or b"", version)
                return Claim(spread(read.previous_assignment), read.generation)
        return Claim()


class CooperativeStickyAssignor(_Sticky):
    """Members keep their partitions.

    A partition that moves is left out at first. Its new owner gets it in the next rebalance, which follows when the
    old one has given it up.
    """

    name = "cooperative-sticky"
    protocols = frozenset({RebalanceProtocol.EAGER, RebalanceProtocol.COOPERATIVE})

    def __init__(self) -> None:
        super().__init__()
        self._generation = NO_GENERATION

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return CooperativeUserData(generation=self._generation).encode(0)

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        assignment, moved = self._divide(partitions, members)
        if moved is None:
            moved = _changing_hands(assignment, members)
        for partition, member in moved.items():
            assignment[member].remove(partition)
        return assignment

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        self._generation = generation

    def _claim(self, subscription: Subscription) -> Claim:
        generation = subscription.generation
        if generation == NO_GENERATION and subscription.user_data is not None:
            with suppress(ProtocolError):
                generation = CooperativeUserData.decode(subscription.user_data, 0).generation
        return Claim(subscription.owned, generation)


def _changing_hands(assignment: Assignment, members: Mapping[str, Subscription]) -> dict[TopicPartition, str]:
    """The partitions that move from one member to another, with their new owners."""
    added: dict[TopicPartition, str] = {}
    given_up: set[TopicPartition] = set()
    for member, partitions in assignment.items():
        has = set(members[member].owned)
        gets = set(partitions)
        added.update((partition, member) for partition in gets - has)
        given_up |= has - gets
    return {partition: member for partition, member in added.items() if partition in given_up}
