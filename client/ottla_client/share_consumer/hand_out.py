"""Records that the application takes from an iterator, and how far it has come.

The application holds a plain list iterator, as that of ``Consumer``: no client code runs between two records, and it
may run in another thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, repeat
from operator import length_hint
from typing import Any

from ..consumer.rows import Rows, to_records
from ..types import ConsumerRecord
from .acquisition import Acquisition

Record = ConsumerRecord[Any, Any]


class HandOut:
    """The records of one poll of the engine."""

    def __init__(self, taken: Sequence[tuple[Acquisition, Rows]] = (), *, one_by_one: bool = False) -> None:
        """``one_by_one``: the application asks for each record when it has processed the one before."""
        self._records = to_records([rows for _, rows in taken])
        self._sources = list(chain.from_iterable(repeat(source, rows.count) for source, rows in taken))
        self._taken = taken
        self._known = 0
        self.iterator: Iterator[Record] = iter(self._records)
        self.one_by_one = one_by_one

    @property
    def left(self) -> int:
        """How many records the application has not taken."""
        return length_hint(self.iterator)

    @property
    def current(self) -> Record | None:
        """The record that the application works on, if it takes them one by one."""
        taken = len(self._records) - self.left
        return self._records[taken - 1] if self.one_by_one and taken else None

    def rows(self) -> list[Rows]:
        """Take all records at once, as columns."""
        self.iterator = iter(())
        return [rows for _, rows in self._taken]

    def newly_taken(self) -> Iterator[tuple[Acquisition, Record]]:
        """The records that the application has taken since the last call."""
        before, self._known = self._known, len(self._records) - self.left
        return zip(self._sources[before : self._known], self._records[before : self._known], strict=True)

    def give_back(self, records: Sequence[Record]) -> None:
        """Hand the last records that were taken out again: their call was interrupted."""
        first = len(self._records) - self.left - len(records)
        self._known = min(self._known, first)
        self.iterator = iter(self._records[first:])
