"""The uniform assignor where members subscribe to different topics.

Kafka: ``UniformHeterogeneousAssignmentBuilder``: keep what is still subscribed, give the rest to the subscriber with
the fewest partitions, then move partitions from the most to the least loaded subscriber of a topic until that changes
nothing.
"""

from __future__ import annotations

from collections.abc import Mapping
from heapq import heapify, heappop, heappush
from typing import Final

from ottla_broker.coordinator.group.modern.member import Partitions

_ROUNDS: Final = 16
"""The most passes over all topics; each roughly halves what is out of balance."""


def assign_uneven(
    subscriptions: Mapping[str, frozenset[bytes]],
    before: Mapping[str, Partitions],
    counts: Mapping[bytes, int],
) -> dict[str, Partitions]:
    """The target of each member. ``counts``: partitions of each topic."""
    return _Balancer(subscriptions, before, counts).run()


class _Balancer:
    """``owned[topic][member]`` has the member's partitions of a topic, ``load`` the number of its partitions."""

    def __init__(
        self,
        subscriptions: Mapping[str, frozenset[bytes]],
        before: Mapping[str, Partitions],
        counts: Mapping[bytes, int],
    ) -> None:
        self._members = sorted(subscriptions)
        self._subscribers: dict[bytes, list[str]] = {}
        for member in self._members:
            for topic in subscriptions[member]:
                self._subscribers.setdefault(topic, []).append(member)
        self._counts = counts
        self._load = dict.fromkeys(self._members, 0)
        self._owned: dict[bytes, dict[str, set[int]]] = {topic: {} for topic in self._subscribers}
        self._before = before
        self._subscriptions = subscriptions
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -counts[topic] / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )

    def run(self) -> dict[str, Partitions]:
        self._keep()
        for topic in self._topics:
            self._assign_rest(topic)
        for _ in range(_ROUNDS):
            if not sum(self._balance(topic) for topic in self._topics):
                break
        target: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in self._members}
        for topic, owners in self._owned.items():
            for member, indexes in owners.items():
                if indexes:
                    target[member][topic] = frozenset(indexes)
        return dict(target)

    def _keep(self) -> None:
        taken: dict[bytes, set[int]] = {topic: set() for topic in self._subscribers}
        for member in self._members:
            for topic, indexes in self._before.get(member, {}).items():
                if topic in self._subscriptions[member]:
                    kept = {index for index in indexes if index < self._counts[topic]} - taken[topic]
                    if kept:
                        taken[topic] |= kept
                        self._owned[topic][member] = kept
                        self._load[member] += len(kept)

    def _assign_rest(self, topic: bytes) -> None:
        taken: set[int] = set().union(*self._owned[topic].values())
        free = [index for index in range(self._counts[topic]) if index not in taken]
        if not free:
            return
        heap = [(self._load[member], member) for member in self._subscribers[topic]]
        heapify(heap)
        for index in free:
            load, member = heappop(heap)
            self._owned[topic].setdefault(member, set()).add(index)
            self._load[member] = load + 1
            heappush(heap, (load + 1, member))

    def _balance(self, topic: bytes) -> int:
        """Move partitions of one topic from the most to the least loaded of its subscribers; returns how many."""
        load, owners = self._load, self._owned[topic]
        least = [(load[member], member) for member in self._subscribers[topic]]
        most = [(-load[member], member) for member, indexes in owners.items() if indexes]
        heapify(least)
        heapify(most)
        moves = 0
        while most:
            high, giver = heappop(most)
            if -high != load[giver] or not owners[giver]:
                continue  # an entry from before a move
            while least[0][0] != load[least[0][1]]:
                heappop(least)
            low, taker = least[0]
            if -high - low <= 1:
                break
            index = max(owners[giver])
            owners[giver].remove(index)
            owners.setdefault(taker, set()).add(index)
            load[giver] -= 1
            load[taker] += 1
            moves += 1
            for member in (giver, taker):
                heappush(least, (load[member], member))
                if owners[member]:
                    heappush(most, (-load[member], member))
        return moves
