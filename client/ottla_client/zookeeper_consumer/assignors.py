"""Which stream gets which partition. Each member computes it alone, from the same nodes, and so agrees with the others.

Pure functions. Source: ``PartitionAssignor`` of Kafka 0.10.2; the results are Kafka's, because Java's consumers may be
members of the same group.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import chain
from typing import Final, TypeAlias

from ottla_protocol.partitioning import java_string_hash

from ..types import TopicPartition
from .subscription import ThreadId

Assignment: TypeAlias = dict[TopicPartition, ThreadId]
Assign: TypeAlias = Callable[[Mapping[str, Sequence[int]], Mapping[str, Sequence[ThreadId]]], Assignment]
"""From each topic's sorted partitions and the streams that read it."""


def in_order(threads: Sequence[ThreadId]) -> list[ThreadId]:
    """As Java sorts texts, by their UTF-16 code units: ``c-10`` comes before ``c-2``."""
    return sorted(threads, key=lambda thread: str(thread).encode("utf-16-be", "surrogatepass"))


def assign_range(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[ThreadId]]
) -> Assignment:
    """Topic by topic, contiguous partitions to each stream; the first streams get one more if they don't divide.

    ::

        6. let i be the index position of Ci in CG and let N = size(PT)/size(CG)
        7. assign partitions from i*N to (i+1)*N - 1 to consumer Ci
    """
    assigned: Assignment = {}
    for topic, numbers in partitions.items():
        readers = in_order(threads.get(topic, ()))
        if not readers:
            continue
        each, extra = divmod(len(numbers), len(readers))
        for i, thread in enumerate(readers):
            start = each * i + min(i, extra)
            for number in numbers[start : start + each + (i < extra)]:
                assigned[TopicPartition(topic, number)] = thread
    return assigned


def assign_roundrobin(
    partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[ThreadId]]
) -> Assignment:
    """All partitions in the order of their hash codes, in turn to the streams that read their topic.

    Kafka 0.8.2 refuses this strategy unless all members have the same topics and streams; then the result is the same.
    """
    readers = in_order(list(dict.fromkeys(chain.from_iterable(threads.values()))))
    of_topic = {topic: frozenset(its) for topic, its in threads.items() if its}
    every = [
        TopicPartition(topic, number)
        for topic, numbers in partitions.items()
        if topic in of_topic
        for number in numbers
    ]
    assigned: Assignment = {}
    turn = 0
    for partition in sorted(
        every, key=lambda each: (java_string_hash(f"[{each.topic},{each.partition}]"), each)
    ):
        while readers[turn % len(readers)] not in of_topic[partition.topic]:
            turn += 1
        assigned[partition] = readers[turn % len(readers)]
        turn += 1
    return assigned


STRATEGIES: Final[Mapping[str, Assign]] = {"range": assign_range, "roundrobin": assign_roundrobin}
