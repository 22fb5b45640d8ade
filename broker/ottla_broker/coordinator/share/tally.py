"""Counts what becomes of a share group's records at one broker's partitions, for those who watch over it."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

from ottla_broker.coordinator.share.in_flight import Acknowledgement, Dropped

_KEPT: Final = 100


class DroppedOffsets(NamedTuple):
    """Offsets of a partition that were dropped, and when."""

    at_ms: int
    topic: str
    partition: int
    first: int
    last: int
    rejected: bool


class DeliveryTally:
    """Owned by the loop thread.

    Attributes:
        types: acknowledged records by the type of their acknowledgement.
        timeouts: records whose acquisition lock timed out: a member took longer than it may.
        rejected, given_up: dropped records: by members, and after too many deliveries.
        losses: the last of them.
    """

    __slots__ = ("given_up", "losses", "rejected", "timeouts", "types")

    def __init__(self) -> None:
        self.types: Counter[int] = Counter()
        self.timeouts = self.rejected = self.given_up = 0
        self.losses: deque[DroppedOffsets] = deque(maxlen=_KEPT)

    def acknowledged(self, batches: Sequence[Acknowledgement]) -> None:
        for first, last, types in batches:
            if len(types) == 1:
                self.types[types[0]] += last - first + 1
            else:
                self.types.update(types)

    def drop(self, now_ms: int, topic: str, partition: int, dropped: Iterable[Dropped]) -> None:
        for first, last, rejected in dropped:
            if rejected:
                self.rejected += last - first + 1
            else:
                self.given_up += last - first + 1
            self.losses.append(DroppedOffsets(now_ms, topic, partition, first, last, rejected))
