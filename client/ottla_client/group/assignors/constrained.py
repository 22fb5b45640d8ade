"""Sticky assignment for members with the same topics: each one's share is known from the start."""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping

from ...types import TopicPartition
from .base import Assignment
from .previous_owners import Owned


def assign_constrained(
    topics: Mapping[str, int], owned: Owned
) -> tuple[Assignment, dict[TopicPartition, str]]:
    """The assignment, and the partitions in it that another member has or may have, with their new owners.

    Each member gets the average, rounded down or up, and keeps as many of its partitions as fit.
    Source: Java's AbstractStickyAssignor.ConstrainedAssignmentBuilder.
    """
    return _Builder(topics, owned).build()


class _Builder:
    def __init__(self, topics: Mapping[str, int], owned: Owned) -> None:
        self.topics = topics
        self.owned = owned
        self.least, self.above = divmod(sum(topics.values()), len(owned.by_member))
        self.most = self.least + (self.above > 0)
        self.filled_above = 0  # members with `most` partitions, if that is more than `least`
        self.assignment: Assignment = {member: [] for member in owned.by_member}
        self.below: list[str] = []  # members that need more to reach `least`
        self.at_least: list[str] = []  # members that may get one more
        self.given_up: dict[TopicPartition, str] = {}
        self.moved: dict[TopicPartition, str] = {}

    def build(self) -> tuple[Assignment, dict[TopicPartition, str]]:
        for member, partitions in self.owned.by_member.items():
            self._keep(member, partitions)
        kept = {partition for partitions in self.assignment.values() for partition in partitions}
        free = [
            partition
            for topic in sorted(self.topics)
            for number in range(self.topics[topic])
            if (partition := TopicPartition(topic, number)) not in kept
        ]
        self._hand_out(free)
        return self.assignment, self.moved

    def _keep(self, member: str, partitions: list[TopicPartition]) -> None:
        """Let a member keep its partitions, up to its share."""
        mine = sorted(set(partitions) - self.owned.contested, key=lambda one: (one.partition, one.topic))
        if len(mine) < self.least:
            keep = len(mine)
            self.below.append(member)
        elif len(mine) >= self.most and self.filled_above < self.above:
            keep = self.most
            self.filled_above += 1
        else:
            keep = self.least
            self.at_least.append(member)
        self.assignment[member] += mine[:keep]
        for partition in mine[keep:]:
            self.given_up[partition] = member

    def _hand_out(self, free: list[TopicPartition]) -> None:
        """Assign the free partitions: first until all members have ``least``, then one more each."""
        below = deque(sorted(self.below))
        at_least = deque(sorted(self.at_least))
        for partition in free:
            if below:
                member = below.popleft()
                if len(self.assignment[member]) + 1 == self.least:
                    at_least.append(member)
                else:
                    below.append(member)
            else:
                member = at_least.popleft()
            self.assignment[member].append(partition)
            if partition in self.owned.contested or self.given_up.get(partition, member) != member:
                self.moved[partition] = member
