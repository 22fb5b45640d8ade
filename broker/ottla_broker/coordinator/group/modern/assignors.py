"""The assignors: which member should have which partitions. Pure functions.

Kafka: ``UniformHomogeneousAssignmentBuilder``, ``RangeAssignor``. All members' subscriptions and all topics are given,
and the target that was in force so far. Two rules are Ottla's: of members with equal claims, those that have more keep
more, so that fewer partitions move; and where it costs neither balance nor a move, a partition goes to a member in a
rack of one of its replicas.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Final

from ottla_broker.coordinator.group.modern.specs import Members, Target, Topics
from ottla_broker.coordinator.group.modern.uneven import assign_uneven

TopicPartition = tuple[bytes, int]


def uniform(members: Members, topics: Topics) -> Target:
    """Give each member as many partitions as any other, or one fewer, and move as few as that allows."""
    if len({spec.topics for spec in members.values()}) <= 1:
        return _even(members, topics)
    return assign_uneven(members, topics)


def _even(members: Members, topics: Topics) -> Target:
    """Every member subscribes to the same topics."""
    if not members:
        return {}
    subscribed = next(iter(members.values())).topics
    counts = {topic: topics[topic].partitions for topic in sorted(subscribed)}
    least, extra = divmod(sum(counts.values()), len(members))
    taken: dict[bytes, set[int]] = {topic: set() for topic in counts}
    kept: dict[str, dict[bytes, set[int]]] = {}
    room: dict[str, int] = {}
    sizes = {member: sum(map(len, spec.target.values())) for member, spec in members.items()}
    for position, member in enumerate(sorted(members, key=lambda each: (-sizes[each], each))):
        quota = least + (position < extra)
        # A topic that was deleted and created again has another id; partitions never become fewer.
        valid = [
            (topic, index)
            for topic, indexes in members[member].target.items()
            for index in sorted(indexes)
            if index < counts.get(topic, 0) and index not in taken[topic]
        ]
        rack = members[member].rack_id
        if rack is not None and len(valid) > quota:
            # Members join one after another: each that came before gives up what is in other racks first.
            valid.sort(key=lambda each: rack not in topics[each[0]].racks_of(each[1]))
        mine: dict[bytes, set[int]] = {}
        for topic, index in valid[:quota]:
            mine.setdefault(topic, set()).add(index)
            taken[topic].add(index)
        kept[member], room[member] = mine, quota - min(quota, len(valid))
    free = [
        (topic, index)
        for topic, count in counts.items()
        for index in range(count)
        if index not in taken[topic]
    ]
    for member, partition in _hand_out(free, members, topics, room):
        kept[member].setdefault(partition[0], set()).add(partition[1])
    return {member: {topic: frozenset(each) for topic, each in mine.items()} for member, mine in kept.items()}


def _hand_out(
    free: Sequence[TopicPartition], members: Members, topics: Topics, room: Mapping[str, int]
) -> Iterable[tuple[str, TopicPartition]]:
    """Give the free partitions to the members with room: first within their racks, then the rest in order."""
    left = {member: quota for member, quota in room.items() if quota}
    given: set[TopicPartition] = set()
    racks = {members[member].rack_id for member in left} - {None}
    by_rack: dict[str, deque[TopicPartition]] = {rack: deque() for rack in racks if rack is not None}
    if by_rack:
        for topic, index in free:
            for rack in topics[topic].racks_of(index):
                if rack in by_rack:
                    by_rack[rack].append((topic, index))
        for member in left:
            queue = by_rack.get(members[member].rack_id or "")
            while queue and left[member]:
                partition = queue.popleft()
                if partition not in given:
                    given.add(partition)
                    left[member] -= 1
                    yield member, partition
    rest = (partition for partition in free if partition not in given)
    for member, quota in left.items():
        for _, partition in zip(range(quota), rest, strict=False):
            yield member, partition


def by_range(members: Members, topics: Topics) -> Target:
    """Give each member a range of each topic, so that topics with as many partitions are divided alike.

    Static members come first, by their instance id, so that they keep their ranges under new member ids.
    """
    order = sorted(
        members,
        key=lambda member: (members[member].instance_id is None, members[member].instance_id or member),
    )
    subscribers: dict[bytes, list[str]] = {}
    for member in order:
        for topic in members[member].topics:
            subscribers.setdefault(topic, []).append(member)
    target: dict[str, dict[bytes, frozenset[int]]] = {member: {} for member in members}
    for topic in sorted(subscribers):
        least, extra = divmod(topics[topic].partitions, len(subscribers[topic]))
        start = 0
        for position, member in enumerate(subscribers[topic]):
            end = start + least + (position < extra)
            if start < end:
                target[member][topic] = frozenset(range(start, end))
            start = end
    return dict(target)


Assignor = Callable[[Members, Topics], Target]

ASSIGNORS: Final[Mapping[str, Assignor]] = {"uniform": uniform, "range": by_range}
"""By the name that clients use."""

CLASS_NAMES: Final[Mapping[str, str]] = {
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor": "uniform",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor": "range",
}
"""Kafka's classes, by which ``group.consumer.assignors`` names them too."""


def assignor_names(configured: Iterable[str]) -> tuple[str, ...]:
    """The assignors that ``group.consumer.assignors`` names, in its order."""
    return tuple(dict.fromkeys(CLASS_NAMES.get(name, name) for name in configured))
