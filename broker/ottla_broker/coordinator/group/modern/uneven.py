"""The uniform assignor where members subscribe to different topics.

Kafka: ``UniformHeterogeneousAssignmentBuilder``: keep what is still subscribed, give the rest to the subscriber with
the fewest partitions, then move partitions from the most to the least loaded subscriber of a topic until that changes
nothing. Among partitions of one topic, a member gets one that has a replica in its rack; how many it gets is as if
there were no racks.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from heapq import heapify, heappop, heappush
from typing import Final

from ottla_broker.coordinator.group.modern.specs import Members, Target, Topics, TopicSpec

_ROUNDS: Final = 16
"""The most passes over all topics; each roughly halves what is out of balance."""
_NONE: Final[frozenset[int]] = frozenset()


def assign_uneven(members: Members, topics: Topics) -> Target:
    """The target of each member."""
    return _Balancer(members, topics).run()


class _Free:
    """Partitions of a topic that no member has, for members in ``racks``."""

    def __init__(self, topic: TopicSpec, free: Iterable[int], racks: set[str]) -> None:
        self._left = set(free)
        self._near: dict[str, deque[int]] = {rack: deque() for rack in racks}
        far: list[int] = []
        near: list[int] = []
        for index in sorted(self._left):
            found = topic.racks_of(index) & racks
            for rack in found:
                self._near[rack].append(index)
            (near if found else far).append(index)
        self._rest = deque(far + near)

    def __bool__(self) -> bool:
        return bool(self._left)

    def take(self, rack: str | None) -> int:
        """One of the rack, or else one that is in no member's rack, or else any."""
        for queue in (self._near.get(rack or ""), self._rest):
            while queue:
                index = queue.popleft()
                if index in self._left:
                    self._left.remove(index)
                    return index
        raise IndexError("no partition is free")


class _Balancer:
    """``owned[topic][member]`` has the member's partitions of a topic, ``load`` the number of its partitions."""

    def __init__(self, members: Members, topics: Topics) -> None:
        self._specs = members
        self._topic_specs = topics
        self._members = sorted(members)
        self._subscribers: dict[bytes, list[str]] = {}
        for member in self._members:
            for topic in members[member].topics:
                self._subscribers.setdefault(topic, []).append(member)
        self._load = dict.fromkeys(self._members, 0)
        self._owned: dict[bytes, dict[str, set[int]]] = {topic: {} for topic in self._subscribers}
        self._topics = sorted(
            self._subscribers,
            key=lambda topic: (
                -topics[topic].partitions / len(self._subscribers[topic]),
                len(self._subscribers[topic]),
                topic,
            ),
        )

    def run(self) -> Target:
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
            for topic, indexes in self._specs[member].target.items():
                if topic in self._specs[member].topics:
                    count = self._topic_specs[topic].partitions
                    kept = {index for index in indexes if index < count} - taken[topic]
                    if kept:
                        taken[topic] |= kept
                        self._owned[topic][member] = kept
                        self._load[member] += len(kept)

    def _assign_rest(self, topic: bytes) -> None:
        taken: set[int] = set().union(*self._owned[topic].values())
        spec, subscribers = self._topic_specs[topic], self._subscribers[topic]
        racks = {rack for member in subscribers if (rack := self._specs[member].rack_id) is not None}
        free = _Free(spec, set(range(spec.partitions)) - taken, racks)
        heap = [(self._load[member], member) for member in subscribers]
        heapify(heap)
        while free:
            load, member = heappop(heap)
            self._owned[topic].setdefault(member, set()).add(free.take(self._specs[member].rack_id))
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
            index = self._to_move(topic, giver, taker)
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

    def _to_move(self, topic: bytes, giver: str, taker: str) -> int:
        """Of the giver's partitions, one that is new to it, and in the taker's rack rather than in its own."""
        spec = self._topic_specs[topic]
        here, there = self._specs[giver].rack_id, self._specs[taker].rack_id
        had = self._specs[giver].target.get(topic, _NONE)

        def gain(index: int) -> tuple[bool, int, int]:
            racks = spec.racks_of(index)
            return index not in had, (there in racks) - (here in racks), index

        return max(self._owned[topic][giver], key=gain)
