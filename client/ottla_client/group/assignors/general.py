"""Sticky assignment for members with different topics: move partitions until no move makes it more even."""

from __future__ import annotations

from bisect import insort
from collections.abc import Iterator, Mapping, Sequence

from ...types import TopicPartition
from .base import Assignment, Subscription
from .previous_owners import Owned


def assign_general(
    topics: Mapping[str, int], members: Mapping[str, Subscription], owned: Owned
) -> Assignment:
    """As even as the subscriptions allow, with few moves.

    Java's AbstractStickyAssignor.GeneralAssignmentBuilder.
    """
    return _Builder(topics, members, owned).build()


class _Ranking:
    """Members by number of partitions, fewest first. A member is removed while its number changes."""

    def __init__(self, current: Assignment) -> None:
        self._current = current
        self._ranked = sorted((len(has), member) for member, has in current.items())

    def __iter__(self) -> Iterator[str]:
        return (member for _, member in self._ranked)

    def remove(self, member: str) -> None:
        self._ranked.remove((len(self._current[member]), member))

    def add(self, member: str) -> None:
        insort(self._ranked, (len(self._current[member]), member))

    def spread(self) -> int:
        """The difference between the most and the fewest partitions."""
        return self._ranked[-1][0] - self._ranked[0][0] if self._ranked else 0


class _Builder:
    def __init__(self, topics: Mapping[str, int], members: Mapping[str, Subscription], owned: Owned) -> None:
        self.topics = topics
        self.former = owned.former
        self.reads = {
            member: [topic for topic in topics if topic in subscription.topics]
            for member, subscription in members.items()
        }
        self.readers: dict[str, set[str]] = {topic: set() for topic in topics}
        for member, read in self.reads.items():
            for topic in read:
                self.readers[topic].add(member)
        self.current: Assignment = {}
        self.owner: dict[TopicPartition, str] = {}
        self.unsubscribed = False  # whether a member has partitions of topics that it no longer reads
        for member, partitions in owned.by_member.items():
            self.current[member] = [one for one in partitions if member in self.readers[one.topic]]
            self.unsubscribed |= len(self.current[member]) < len(partitions)
            for partition in self.current[member]:
                self.owner[partition] = member
        self.ranking = _Ranking(self.current)
        self.even: bool | None = None  # the result of `_balanced`, until a partition moves

    def build(self) -> Assignment:
        by_readers = sorted(self.topics, key=lambda topic: (len(self.readers[topic]), topic))
        everything = [TopicPartition(topic, n) for topic in by_readers for n in range(self.topics[topic])]
        free = [partition for partition in everything if partition not in self.owner]
        from_nothing = not self.owner
        for partition in free:
            self._give(partition)
        # Partitions with a single reader stay, and so do members that can only have those.
        everything = [one for one in everything if len(self.readers[one.topic]) > 1]
        free = [one for one in free if len(self.readers[one.topic]) > 1]
        fixed = {member: has for member, has in self.current.items() if not self._negotiable(member)}
        for member in fixed:
            self.ranking.remove(member)
            del self.current[member]
        before = {member: list(has) for member, has in self.current.items()}
        if not self.unsubscribed:
            self._even_out(free)
        moved = self._even_out(everything)
        if not from_nothing and moved and _score(self.current) >= _score(before):
            return before | fixed
        self._undo_exchanges(before)
        return self.current | fixed

    def _give(self, partition: TopicPartition) -> None:
        """Assign a partition to the topic's reader with the fewest."""
        for member in self.ranking:
            if member in self.readers[partition.topic]:
                self.ranking.remove(member)
                self.current[member].append(partition)
                self.owner[partition] = member
                self.ranking.add(member)
                return

    def _negotiable(self, member: str) -> bool:
        """Whether the member could get or lose a partition."""
        has = self.current[member]
        could_have = sum(self.topics[topic] for topic in self.reads[member])
        return len(has) < could_have or any(len(self.readers[one.topic]) > 1 for one in has)

    def _even_out(self, partitions: Sequence[TopicPartition]) -> bool:
        """Move partitions to members with fewer while that helps. Returns whether any was moved."""
        moved = False
        again = True
        while again:
            again = False
            for partition in partitions:
                if self._balanced():
                    break
                target = self._better_owner(partition)
                if target is not None:
                    self._move(partition, target)
                    moved = again = True
        return moved

    def _better_owner(self, partition: TopicPartition) -> str | None:
        """A member with at least two fewer: the previous owner, or the one with the fewest."""
        readers = self.readers[partition.topic]
        has = len(self.current[self.owner[partition]])
        former = self.former.get(partition)
        if former in readers and has > len(self.current[former]) + 1:
            return former
        least = next(member for member in self.ranking if member in readers)
        return least if has > len(self.current[least]) + 1 else None

    def _move(self, partition: TopicPartition, target: str) -> None:
        source = self.owner[partition]
        self.even = None
        self.ranking.remove(source)
        self.ranking.remove(target)
        self.current[source].remove(partition)
        self.current[target].append(partition)
        self.owner[partition] = target
        self.ranking.add(source)
        self.ranking.add(target)

    def _undo_exchanges(self, before: Assignment) -> None:
        """If partitions of a topic moved from A to B and from B to A, let both stay."""
        moved: dict[tuple[str, str, str], list[TopicPartition]] = {}
        for source, had in before.items():
            for partition in had:
                target = self.owner[partition]
                if target == source:
                    continue
                opposite = moved.get((partition.topic, target, source))
                if opposite:
                    self._swap(partition, opposite.pop())
                else:
                    moved.setdefault((partition.topic, source, target), []).append(partition)

    def _swap(self, one: TopicPartition, other: TopicPartition) -> None:
        for partition, target in ((one, self.owner[other]), (other, self.owner[one])):
            self.current[self.owner[partition]].remove(partition)
            self.current[target].append(partition)
            self.owner[partition] = target

    def _balanced(self) -> bool:
        """Whether no member can get a partition from one that has two more."""
        if self.even is None:
            self.even = self.ranking.spread() <= 1 or not self._improvable()
        return self.even

    def _improvable(self) -> bool:
        least: dict[str, int] = {}  # by topic, the fewest partitions of any of its readers
        for member in reversed(list(self.ranking)):
            has = self.current[member]
            for topic in {partition.topic for partition in has}:
                if topic not in least:
                    reader = next(each for each in self.ranking if each in self.readers[topic])
                    least[topic] = len(self.current[reader])
                if least[topic] + 1 < len(has):
                    return True
        return False


def _score(assignment: Assignment) -> int:
    """The unevenness of an assignment: the sum of the differences of all pairs."""
    sizes = sorted(map(len, assignment.values()))
    return sum(size * (2 * index - len(sizes) + 1) for index, size in enumerate(sizes))
