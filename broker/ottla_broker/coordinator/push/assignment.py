"""Who should own which partition, and whether the group needs a rebalance: pure functions.

An owner is a consumer's stream, ``CONSUMER-0``, ``CONSUMER-1``, …, as in the ownership that ZooKeeper consumers keep.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import Enum

TopicPartition = tuple[str, int]
Assignment = dict[TopicPartition, str]
"""From a partition to the id of the stream that owns it."""


class Need(Enum):
    """Why a rebalance is necessary. The first four are the design's, 3.1 to 3.4."""

    NO_OWNERSHIP = "there is no registered ownership"
    NOT_OWNED = "some partitions are not owned"
    GONE = "some partitions in the ownership don't exist any longer"
    OTHER_OWNERS = "the ownership doesn't match the new assignment"
    NOT_STARTED = "some consumers have not started their share"


def thread_id(consumer_id: str, stream: int) -> str:
    """The id of a consumer's stream."""
    return f"{consumer_id}-{stream}"


def assign(partitions: Mapping[str, Sequence[int]], threads: Mapping[str, Sequence[str]]) -> Assignment:
    """Topic by topic, consecutive partitions to each stream; the first streams get one more if they don't divide.

    Steps 4 to 7 of the rebalancing algorithm that consumers ran by themselves: "sort PT, sort CG, let N =
    size(PT)/size(CG), assign partitions from i*N to (i+1)*N - 1 to consumer Ci". ``threads`` are the streams that read
    each topic.
    """
    assigned: Assignment = {}
    for topic, numbers in partitions.items():
        readers = sorted(threads.get(topic, ()))
        if not readers:
            continue
        each, extra = divmod(len(numbers), len(readers))
        in_order = sorted(numbers)
        start = 0
        for index, reader in enumerate(readers):
            end = start + each + (index < extra)
            for number in in_order[start:end]:
                assigned[topic, number] = reader
            start = end
    return assigned


def rebalance_need(
    wanted: Assignment, owners: Mapping[TopicPartition, str | None], started: bool
) -> Need | None:
    """Why a rebalance is necessary, None if it isn't.

    ``owners`` is the registered ownership, with None for a node that can't be read. ``started``: every consumer has
    confirmed exactly its share of ``wanted`` since it registered.
    """
    if wanted and not owners:
        return Need.NO_OWNERSHIP
    if any(owners.get(partition) is None for partition in wanted):
        return Need.NOT_OWNED
    if owners.keys() - wanted.keys():
        return Need.GONE
    if any(owners[partition] != owner for partition, owner in wanted.items()):
        return Need.OTHER_OWNERS
    return None if started else Need.NOT_STARTED
