"""The assignor "range": each member gets neighbouring partitions of each topic."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...types import TopicPartition
from .base import Assignment, RebalanceProtocol, Subscription, in_order, subscribed


class RangeAssignor:
    """Divides each topic among its readers in order; the first members get the remainder, one partition each.

    Topics with the same number of partitions are divided alike, so that a member gets the same partition of each
    (Java's RangeAssignor without rack matching).
    """

    name = "range"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

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

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        pass
