"""The assignor "roundrobin": assigns all partitions of all topics one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...types import TopicPartition
from .base import Assignment, RebalanceProtocol, Subscription, in_order, subscribed


class RoundRobinAssignor:
    """Assigns partitions by topic and number to the members in turn; skips members that don't read the topic.

    If all members read the same topics, their numbers of partitions differ by one at most (Java's RoundRobinAssignor).
    """

    name = "roundrobin"
    protocols = frozenset({RebalanceProtocol.EAGER})

    def user_data(self, topics: Collection[str]) -> bytes | None:
        return None

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

    def on_assignment(self, partitions: Collection[TopicPartition], generation: int) -> None:
        pass
