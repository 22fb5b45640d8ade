"""The assignor "roundrobin": all partitions of all topics dealt out one by one."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from ...types import TopicPartition
from .base import Assignment, RebalanceProtocol, Subscription, in_order, subscribed


class RoundRobinAssignor:
    """Partitions by topic and number, to the members in turn; who doesn't read a topic is passed over.

    Where all read the same, nobody gets two more than another (Java's RoundRobinAssignor).
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
