"""The owners of partitions before a rebalance, from the members' claims."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import NamedTuple

from ...types import TopicPartition
from .base import NO_GENERATION, Subscription


class Claim(NamedTuple):
    """The partitions that a member says it had, and in which generation; NO_GENERATION if it doesn't say."""

    partitions: tuple[TopicPartition, ...] = ()
    generation: int = NO_GENERATION


@dataclass(slots=True)
class Owned:
    """The partitions of each member.

    ``contested`` were claimed by several members of one generation, so no member owns them. ``former`` has the owners
    by the newest of the claims from older generations: they may get the partitions back.
    """

    by_member: dict[str, list[TopicPartition]] = field(default_factory=dict)
    contested: set[TopicPartition] = field(default_factory=set)
    former: dict[TopicPartition, str] = field(default_factory=dict)


def previous_owners(
    topics: Mapping[str, int],
    members: Mapping[str, Subscription],
    claim_of: Callable[[Subscription], Claim],
    newest: int,
) -> tuple[Owned, int]:
    """The owners, and the newest generation of all claims, at least ``newest``.

    A disconnected member may claim partitions that another has since: the newer generation's claim counts (KIP-792).
    """
    owned = Owned()
    claims = {member: claim_of(subscription) for member, subscription in members.items()}
    owner_of: dict[TopicPartition, str] = {}
    for member, (claimed, generation) in claims.items():
        newest = max(newest, generation)
        mine = owned.by_member[member] = []
        for partition in claimed:
            if partition.partition >= topics.get(partition.topic, 0):
                continue
            other = owner_of.get(partition)
            if other is None or generation > claims[other].generation:
                if other is not None:
                    owned.by_member[other].remove(partition)
                    owned.contested.discard(partition)
                owner_of[partition] = member
                mine.append(partition)
            elif generation == claims[other].generation and other != member:
                owned.contested.add(partition)
                if partition in owned.by_member[other]:
                    owned.by_member[other].remove(partition)
    said: dict[TopicPartition, int] = {}
    for member, (claimed, generation) in claims.items():
        if generation < newest:
            for partition in claimed:
                if partition not in said or generation > said[partition]:
                    said[partition] = generation
                    owned.former[partition] = member
    return owned, newest
