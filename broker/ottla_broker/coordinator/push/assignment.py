"""Decides who should own which partition, and whether the group needs a rebalance: pure functions.

An owner is a consumer's stream, ``CONSUMER-0``, ``CONSUMER-1``, …, as in the ownership that ZooKeeper consumers keep.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from heapq import heappop, heappush, heapreplace
from itertools import islice
from typing import Final, TypeVar

from ottla_broker.coordinator.push.subscription import MAX_STREAMS

R = TypeVar("R")
T = TypeVar("T")
TopicPartition = tuple[str, int]
Assignment = dict[TopicPartition, str]
"""From a partition to the id of the stream that owns it."""
_BY_TEXT: Final = tuple(sorted(range(MAX_STREAMS), key=str))
"""The numbers of a consumer's streams, in the order of their ids."""


class Need(Enum):
    """A reason for a rebalance. The first four are the design's, 3.1 to 3.4."""

    NO_OWNERSHIP = "there is no registered ownership"
    NOT_OWNED = "some partitions are not owned"
    GONE = "some partitions in the ownership don't exist any longer"
    OTHER_OWNERS = "the ownership doesn't match the new assignment"
    NOT_STARTED = "some consumers have not started their share"


def thread_id(consumer_id: str, stream: int) -> str:
    """The id of a consumer's stream."""
    return f"{consumer_id}-{stream}"


def threads_in_order(readers: Iterable[tuple[R, str, int]]) -> Iterator[tuple[str, R]]:
    """The ids of consumers' streams in order, each with its consumer.

    It makes only the ids that are taken: a consumer may ask for very many streams. ``readers``: consumers in the order
    of their first streams' ids, with their ids and their numbers of streams.
    """
    heads: list[tuple[str, int, Iterator[str], R]] = []
    for serial, (reader, consumer_id, streams) in enumerate(readers):
        ids = _threads_of(consumer_id, streams)
        first = next(ids)
        while heads and heads[0][0] < first:
            yield _next_of(heads)
        heappush(heads, (first, serial, ids, reader))
    while heads:
        yield _next_of(heads)


def _threads_of(consumer_id: str, streams: int) -> Iterator[str]:
    # islice, so that those of one stream, as most have, don't go through all the numbers.
    found = (thread_id(consumer_id, stream) for stream in _BY_TEXT if stream < streams)
    return islice(found, streams)


def _next_of(heads: list[tuple[str, int, Iterator[str], R]]) -> tuple[str, R]:
    """The least id of those that come next; that of the same consumer after it takes its place."""
    least, serial, ids, reader = heads[0]
    following = next(ids, None)
    if following is None:
        heappop(heads)
    else:
        heapreplace(heads, (following, serial, ids, reader))
    return least, reader


def in_shares(partitions: Sequence[int], threads: Sequence[T]) -> Iterator[tuple[int, T]]:
    """Consecutive partitions of a topic to each stream; the first streams get one more if they don't divide.

    Steps 4 to 7 of the rebalancing algorithm that consumers ran by themselves: "sort PT, sort CG, let N =
    size(PT)/size(CG), assign partitions from i*N to (i+1)*N - 1 to consumer Ci". ``threads`` are the streams that read
    the topic, in order; of more streams than partitions the last ones get none, and may be left out.
    """
    if not threads:
        return
    each, extra = divmod(len(partitions), len(threads))
    in_order = sorted(partitions)
    start = 0
    for index, thread in enumerate(threads):
        end = start + each + (index < extra)
        for number in in_order[start:end]:
            yield number, thread
        start = end


def rebalance_need(
    wanted: Assignment, owners: Mapping[TopicPartition, str | None], started: bool
) -> Need | None:
    """Return why a rebalance is necessary, None if it isn't.

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
