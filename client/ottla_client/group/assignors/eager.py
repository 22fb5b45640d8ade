"""The assignors "range" and "roundrobin", which ignore what members had before."""

from __future__ import annotations

from collections.abc import Mapping

from ...types import TopicPartition
from .base import Assignment, Assignor, RebalanceProtocol, Subscription, in_order, subscribed


class RangeAssignor(Assignor):
    """Divides each topic among its readers in order; the first members get the remainder, one partition each.

    Topics with the same number of partitions are divided alike, so that a member gets the same partition of each
    (Java's RangeAssignor without rack matching).
    """

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        assignment: Assignment = {member: [] for member in members}
        ordered = in_order(members)
        for topic, count in subscribed(partitions, members).items():
            readers = [member for member in ordered if topic in members[member].topics]
            each, more = divmod(count, len(readers))
            start = 0
            for index, member in enumerate(readers):
                end = start + each + (index < more)
                assignment[member] += [TopicPartition(topic, partition) for partition in range(start, end)]
                start = end
        return assignment


class RoundRobinAssignor(Assignor):
    """Assigns partitions by topic and number to the members in turn; skips members that don't read the topic.

    If all members read the same topics, their numbers of partitions differ by one at most (Java's RoundRobinAssignor).
    """

    name = "roundrobin"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def assign(self, partitions: Mapping[str, int], members: Mapping[str, Subscription]) -> Assignment:
        assignment: Assignment = {member: [] for member in members}
        ordered = in_order(members)
        turn = 0
        for topic, count in subscribed(partitions, members).items():
            for partition in range(count):
                while topic not in members[ordered[turn]].topics:
                    turn = (turn + 1) % len(ordered)
                assignment[ordered[turn]].append(TopicPartition(topic, partition))
                turn = (turn + 1) % len(ordered)
        return assignment
