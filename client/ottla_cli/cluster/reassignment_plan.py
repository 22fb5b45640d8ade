"""Plans for the placement of partitions: balanced, across racks, and with as few moves as possible.

A plan lists the new replicas of partitions, the preferred leader first. It is made in steps:

1. replicas stay where they are, except those that share a rack unnecessarily;
2. replicas that can't stay go to the broker with the fewest;
3. brokers are balanced (`balanced` only): while a broker has at least two replicas more than another, one replica
   moves, if necessary through brokers in between, as far as racks allow;
4. preferred leaders are balanced in the same way, by changing the order of replicas, which moves no data.

As in Kafka (KIP-36), if every broker has a rack, a partition's replicas are in as many racks as possible.
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import TypeVar

from ottla_client.types import TopicPartition

Replicas = tuple[int, ...]
Assignment = Mapping[TopicPartition, Replicas]
Item = TypeVar("Item")


class PlanError(ValueError):
    """No such plan exists; the message says why."""


@dataclass(frozen=True, slots=True)
class Move:
    """A partition's current and planned replicas."""

    partition: TopicPartition
    old: Replicas
    new: Replicas

    @property
    def adding(self) -> Replicas:
        """The brokers that will copy the data."""
        return tuple(broker for broker in self.new if broker not in self.old)


def balanced(current: Assignment, brokers: Mapping[int, str | None]) -> list[Move]:
    """Spread these partitions evenly over these brokers, given with their racks. Raises PlanError."""
    plan = _Plan(current, brokers)
    plan.place(current, Counter())
    plan.level_replicas()
    plan.level_leaders(current)
    return plan.moves(current)


def drained(current: Assignment, brokers: Mapping[int, str | None], leaving: Collection[int]) -> list[Move]:
    """Move the replicas of leaving brokers to the others; nothing else moves. Raises PlanError."""
    stay = {broker: rack for broker, rack in brokers.items() if broker not in leaving}
    moving = {tp: replicas for tp, replicas in current.items() if not leaving_none(replicas, leaving)}
    others = [replicas for tp, replicas in current.items() if tp not in moving]
    plan = _Plan(current, stay)
    plan.place(moving, Counter(broker for replicas in others for broker in replicas))
    leads = Counter(replicas[0] for replicas in others if replicas)
    plan.level_leaders({tp: r for tp, r in moving.items() if r and r[0] in leaving}, leads)
    return plan.moves(moving)


def leaving_none(replicas: Replicas, leaving: Collection[int]) -> bool:
    """Whether a partition has no replica on the leaving brokers."""
    return not any(broker in leaving for broker in replicas)


@dataclass(slots=True)
class _Plan:
    """The replicas planned so far.

    ``held`` counts replicas by broker; ``stay`` and ``come`` have the partitions that a broker keeps and gets.
    """

    current: Assignment
    brokers: Mapping[int, str | None]
    replicas: dict[TopicPartition, list[int]] = field(default_factory=dict)
    held: Counter[int] = field(default_factory=Counter)
    stay: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    come: dict[int, dict[TopicPartition, None]] = field(default_factory=dict)
    racks: Mapping[int, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.stay = {broker: {} for broker in self.brokers}
        self.come = {broker: {} for broker in self.brokers}
        known = {broker: rack for broker, rack in self.brokers.items() if rack is not None}
        self.racks = known if len(known) == len(self.brokers) else {}

    def moves(self, among: Iterable[TopicPartition]) -> list[Move]:
        return [
            Move(tp, self.current[tp], tuple(self.replicas[tp]))
            for tp in sorted(among)
            if tuple(self.replicas[tp]) != self.current[tp]
        ]

    def place(self, partitions: Assignment, elsewhere: Counter[int]) -> None:
        """Keep replicas that can stay and place the others. ``elsewhere`` counts replicas outside the plan."""
        gaps: dict[TopicPartition, list[int]] = {}
        self.held = Counter({broker: elsewhere[broker] for broker in self.brokers})
        for tp, replicas in sorted(partitions.items()):
            if len(replicas) > len(self.brokers):
                only = "1 broker" if len(self.brokers) == 1 else f"{len(self.brokers)} brokers"
                has = "1 replica" if len(replicas) == 1 else f"{len(replicas)} replicas"
                what = f"would have only {only}" if self.brokers else "no other broker can take it"
                raise PlanError(f"{tp} has {has}, but {what}")
            stays = self._stay(replicas)
            self.replicas[tp] = list(replicas)
            gaps[tp] = [place for place, broker in enumerate(replicas) if broker not in stays]
            for broker in stays:
                self._count(tp, broker)
        for tp, places in gaps.items():
            for number, place in enumerate(places):
                open_places = places[number:]
                there = [b for at, b in enumerate(self.replicas[tp]) if at not in open_places]
                broker = self._best_for(there)
                self.replicas[tp][place] = broker
                self._count(tp, broker)

    def _stay(self, replicas: Replicas) -> list[int]:
        """The replicas that can stay: the first of each rack, and others while the racks suffice."""
        here = [broker for broker in replicas if broker in self.brokers]
        spare = len(replicas) - self._racks_for(len(replicas))
        stays: list[int] = []
        used: set[str] = set()
        for broker in here:
            rack = self.racks.get(broker)
            if rack is not None and rack in used:
                if spare == 0:
                    continue
                spare -= 1
            if rack is not None:
                used.add(rack)
            stays.append(broker)
        return stays

    def _racks_for(self, count: int) -> int:
        """The number of racks that ``count`` replicas must be in; without racks, ``count``."""
        return min(count, len(set(self.racks.values()))) if self.racks else count

    def _best_for(self, there: Collection[int]) -> int:
        """The broker with the fewest replicas that may take another replica of a partition."""
        used = {self.racks[broker] for broker in there if broker in self.racks}
        free = [broker for broker in self.brokers if broker not in there]
        fresh = [broker for broker in free if self.racks and self.racks[broker] not in used]
        return min(fresh or free, key=lambda broker: (self.held[broker], broker))

    def level_replicas(self) -> None:
        def find(source: int, target: int) -> TopicPartition | None:
            """Prefer a replica that moves anyway, and among these one that was there before."""
            able = [tp for tp in self.come[source] if self._may_go(tp, source, target)]
            if able:
                return min(able, key=lambda tp: (target not in self.current[tp], tp))
            return next((tp for tp in self.stay[source] if self._may_go(tp, source, target)), None)

        def move(tp: TopicPartition, source: int, target: int) -> None:
            places = self.replicas[tp]
            places[places.index(source)] = target
            self.held[source] -= 1
            self._on(tp, source).pop(tp)
            self._count(tp, target)

        _level(self.held, find, move)

    def _may_go(self, tp: TopicPartition, source: int, target: int) -> bool:
        if target in self.replicas[tp]:
            return False
        if not self.racks:
            return True
        racks = {self.racks[target if broker == source else broker] for broker in self.replicas[tp]}
        return len(racks) >= self._racks_for(len(self.replicas[tp]))

    def level_leaders(self, among: Iterable[TopicPartition], elsewhere: Counter[int] | None = None) -> None:
        """Balance preferred leaders by reordering the replicas of these partitions."""
        leads = Counter({broker: (elsewhere or Counter())[broker] for broker in self.brokers})
        led: dict[int, set[TopicPartition]] = {broker: set() for broker in self.brokers}
        chosen = set(among)
        for tp, replicas in self.replicas.items():
            if replicas:
                leads[replicas[0]] += 1
                if tp in chosen:
                    led[replicas[0]].add(tp)

        def find(source: int, target: int) -> TopicPartition | None:
            able = (tp for tp in led[source] if target in self.replicas[tp])
            # Prefer a partition whose replicas change anyway.
            return min(able, key=lambda tp: (tuple(self.replicas[tp]) == self.current[tp], tp), default=None)

        def lead(tp: TopicPartition, source: int, target: int) -> None:
            places = self.replicas[tp]
            at = places.index(target)
            places[0], places[at] = target, source
            leads[source] -= 1
            leads[target] += 1
            led[source].discard(tp)
            led[target].add(tp)

        _level(leads, find, lead)

    def _count(self, tp: TopicPartition, broker: int) -> None:
        self.held[broker] += 1
        self._on(tp, broker)[tp] = None

    def _on(self, tp: TopicPartition, broker: int) -> dict[TopicPartition, None]:
        """The set that counts a broker's replica of this partition; ordered, so that plans are deterministic."""
        return (self.stay if broker in self.current[tp] else self.come)[broker]


def _level(
    load: Counter[int],
    find: Callable[[int, int], Item | None],
    move: Callable[[Item, int, int], None],
) -> None:
    """Move items, one at a time, until no broker can give one to a broker with at least two fewer.

    Where an item can't move directly, it goes to a third broker, which passes on one of its own.
    """
    while (path := _path(load, find)) is not None:
        # Backwards, so that a broker in between gives before it takes.
        for source, target in reversed(list(pairwise(path))):
            item = find(source, target)
            assert item is not None, "a broker that has given an item can take another"
            move(item, source, target)


def _path(load: Counter[int], find: Callable[[int, int], Item | None]) -> Sequence[int] | None:
    """The shortest path from a broker to one with at least two fewer, starting with the fullest broker."""
    brokers = sorted(load, key=lambda broker: (-load[broker], broker))
    for start in brokers:
        if load[start] - load[brokers[-1]] < 2:
            return None
        before: dict[int, int] = {start: start}
        waiting = deque([start])
        while waiting:
            here = waiting.popleft()
            for there in reversed(brokers):  # the emptiest first
                if there in before or find(here, there) is None:
                    continue
                before[there] = here
                if load[start] - load[there] >= 2:
                    path = [there]
                    while path[-1] != start:
                        path.append(before[path[-1]])
                    return path[::-1]
                waiting.append(there)
    return None
