"""Which records the application has, and what becomes of them; no I/O.

A record that was handed out is held until its acknowledgement is taken to be sent::

    (acquired) -- hand_out --> held -- acknowledge, accept_all --> acknowledged -- take --> (sent)
                               ^                                    |
                               '---- acknowledge: another type -----'

What the application never gets, the client acknowledges itself by ``note``: gaps in the log, and records that can't be
read. Java's ``ShareFetch``, ``ShareInFlightBatch``, ``Acknowledgements``.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Hashable, Iterable
from enum import IntEnum
from typing import Final, Generic, NamedTuple, TypeVar

from ..errors import AcknowledgementError
from ..types import TopicPartition

S = TypeVar("S", bound=Hashable)
"""The source of acquired records, and so the target of their acknowledgements."""

GAP: Final = 0
"""The type of offsets that have no record; the number is the protocol's."""


class AcknowledgeType(IntEnum):
    """The kinds of acknowledgement; the numbers are the protocol's."""

    ACCEPT = 1
    """It was processed."""
    RELEASE = 2
    """It was not processed: deliver it again, perhaps to another member."""
    REJECT = 3
    """It can't be processed: don't deliver it again."""


class AcknowledgedRun(NamedTuple):
    """Offsets in a row with one type."""

    first: int
    last: int
    type: int


class Acknowledgements:
    """Those for records that were acquired together: by their offsets, and in runs."""

    __slots__ = ("runs", "types")

    def __init__(self) -> None:
        self.types: dict[int, int] = {}
        """The application's decisions."""
        self.runs: list[AcknowledgedRun] = []
        """The client's decisions. No offset is in both."""

    def in_runs(self) -> list[AcknowledgedRun]:
        """All of them in order, as few runs as possible."""
        every = sorted(
            [*self.runs, *(AcknowledgedRun(each, each, kind) for each, kind in self.types.items())]
        )
        merged: list[AcknowledgedRun] = []
        for run in every:
            before = merged[-1] if merged else None
            if before is not None and before.type == run.type and before.last + 1 == run.first:
                merged[-1] = AcknowledgedRun(before.first, run.last, run.type)
            else:
                merged.append(run)
        return merged

    @property
    def count(self) -> int:
        """The number of offsets that they are about."""
        return len(self.types) + sum(last - first + 1 for first, last, _ in self.runs)


class HeldRecords(Generic[S]):
    """The records of one consumer, by partition and offset."""

    def __init__(self) -> None:
        self._held: dict[tuple[TopicPartition, int], S] = {}
        self._decided: defaultdict[S, Acknowledgements] = defaultdict(Acknowledgements)
        self._acknowledged = 0

    def hand_out(self, source: S, partition: TopicPartition, offset: int) -> None:
        """The application gets a record. One that it holds already was delivered again: the older delivery is void."""
        place = partition, offset
        before = self._held.get(place)
        if before is not None:
            self._forget(before, place)
        self._held[place] = source

    def _forget(self, source: S, place: tuple[TopicPartition, int]) -> None:
        del self._held[place]
        if source in self._decided and self._decided[source].types.pop(place[1], None) is not None:
            self._acknowledged -= 1

    def note(self, source: S, first: int, last: int, kind: int) -> None:
        """The client decides about offsets that the application doesn't get."""
        self._decided[source].runs.append(AcknowledgedRun(first, last, kind))

    def acknowledge(self, partition: TopicPartition, offset: int, kind: AcknowledgeType) -> None:
        """The application decides about a record; until it is taken, also again.

        Raises AcknowledgementError if the application doesn't hold the record.
        """
        source = self._held.get((partition, offset))
        if source is None:
            raise AcknowledgementError(
                f"the record at offset {offset} of {partition} can't be acknowledged: it was not handed out, or its"
                " acknowledgement was sent before"
            )
        types = self._decided[source].types
        self._acknowledged += offset not in types
        types[offset] = int(kind)

    def accept_all(self, but: tuple[TopicPartition, int] | None = None) -> None:
        """Accept all records that are not acknowledged, except ``but``."""
        for place, source in self._held.items():
            types = self._decided[source].types
            if place[1] not in types and place != but:
                types[place[1]] = AcknowledgeType.ACCEPT
                self._acknowledged += 1

    def withdraw(self, places: Iterable[tuple[TopicPartition, int]]) -> None:
        """The application did not get these after all."""
        for place in places:
            source = self._held.get(place)
            if source is not None:
                self._forget(source, place)

    @property
    def unacknowledged(self) -> int:
        """The number of records that the application holds and has not acknowledged."""
        return len(self._held) - self._acknowledged

    def take(self) -> list[tuple[S, Acknowledgements]]:
        """Take what is to be sent; its records are no longer held."""
        decided, self._decided = self._decided, defaultdict(Acknowledgements)
        if self._acknowledged == len(self._held):
            self._held.clear()
        else:
            self._held = {
                place: source
                for place, source in self._held.items()
                if source not in decided or place[1] not in decided[source].types
            }
        self._acknowledged = 0
        return [(source, each) for source, each in decided.items() if each.types or each.runs]
