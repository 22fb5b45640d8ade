"""The persisted state of a share partition, and how it changes. Kafka: ``PersisterStateBatchCombiner``."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Final, NamedTuple

from ottla_broker.coordinator.share.in_flight import Batch
from ottla_broker.coordinator.share.states import RecordState
from ottla_protocol.messages.share_state_records import StateBatch

UNINITIALIZED = -1
"""The start offset of a share partition whose records no consumer has asked for yet."""

_first: Callable[[Batch], int] = attrgetter("first")
_last: Callable[[Batch], int] = attrgetter("last")


TopicIdPartition = tuple[bytes, int]
"""A partition by topic id and index."""


class ShareKey(NamedTuple):
    """A share partition: what one group has done with one partition."""

    group_id: str
    topic_id: bytes
    partition: int


class ShareState(NamedTuple):
    """The persisted state of a share partition.

    Attributes:
        epoch: rises when an administrator sets another start; a leader with an earlier one is fenced.
        leader_epoch: of the leader that read or wrote it last; -1 before the first.
        completed: how many offsets from the start on need no delivery; -1 if that isn't known.
    """

    epoch: int
    leader_epoch: int
    start: int
    batches: Sequence[Batch] = ()
    completed: int = -1


class StateChange(NamedTuple):
    """A change of a share partition that its leader writes.

    Attributes:
        epoch: of the state that the leader has read.
        leader_epoch: the leader's own.
        start: where the group begins now; -1 if it stays.
        completed: how many offsets from the start on need no delivery; -1 if that isn't known.
        batches: what is different since the last change.
    """

    epoch: int
    leader_epoch: int
    start: int
    completed: int
    batches: Sequence[Batch] = ()


def overlay(batches: list[Batch], changes: Iterable[Batch]) -> None:
    """Put ``changes`` into ``batches`` in place of what they cover: these stay sorted and apart from each other."""
    for change in changes:
        low = bisect_left(batches, change.first, key=_last)
        high = bisect_right(batches, change.last, key=_first)
        pieces = [change]
        if low < high:
            if batches[low].first < change.first:
                pieces.insert(0, batches[low]._replace(last=change.first - 1))
            if batches[high - 1].last > change.last:
                pieces.append(batches[high - 1]._replace(first=change.last + 1))
        batches[low:high] = pieces


def trim(batches: list[Batch], start: int) -> None:
    """Drop what lies before ``start``."""
    del batches[: bisect_left(batches, start, key=_last)]
    if batches and batches[0].first < start:
        batches[0] = batches[0]._replace(first=start)


def merged(batches: Iterable[Batch]) -> list[Batch]:
    """The same with neighbours joined that don't differ."""
    result: list[Batch] = []
    for batch in batches:
        if result and result[-1].last + 1 == batch.first and result[-1][2:] == batch[2:]:
            result[-1] = result[-1]._replace(last=batch.last)
        else:
            result.append(batch)
    return result


_KEPT: Final = frozenset(RecordState) - {RecordState.ACQUIRED}
"""The states that are persisted."""


def to_wire(batches: Iterable[Batch]) -> list[StateBatch]:
    return [
        StateBatch(
            first_offset=each.first,
            last_offset=each.last,
            delivery_state=int(each.state),
            delivery_count=each.deliveries,
        )
        for each in batches
    ]


def from_wire(batches: Iterable[StateBatch]) -> list[Batch]:
    """Raises ValueError for what isn't a state."""
    result = []
    for each in batches:
        if not 0 <= each.first_offset <= each.last_offset:
            raise ValueError(f"no batch of states has the offsets {each.first_offset} to {each.last_offset}")
        if each.delivery_state not in _KEPT or each.delivery_count < 0:
            raise ValueError(
                f"no batch has the state {each.delivery_state} after {each.delivery_count} deliveries"
            )
        result.append(
            Batch(each.first_offset, each.last_offset, RecordState(each.delivery_state), each.delivery_count)
        )
    return result
