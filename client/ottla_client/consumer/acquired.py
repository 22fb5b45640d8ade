"""The offsets of a fetched partition that a member of a share group has acquired (KIP-932).

Brokers send whole batches, so a fetch may have records that other members have, and offsets without a record: those of
markers, and of records that compaction has removed.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import repeat

Run = tuple[int, int]
"""The first and the last of some offsets in a row."""


class Acquired:
    """Runs of offsets with their delivery counts."""

    __slots__ = ("_counts", "_firsts", "_lasts")

    def __init__(self, runs: Iterable[tuple[int, int, int]]) -> None:
        """``runs`` are first offset, last offset, delivery count, as a response has them.

        Raises ValueError for runs that overlap, or are out of order.
        """
        self._firsts: list[int] = []
        self._lasts: list[int] = []
        self._counts: list[int] = []
        previous = -1
        for first, last, count in runs:
            if not previous < first <= last:
                raise ValueError(f"the run {first}-{last} of acquired offsets follows {previous}")
            previous = last
            self._firsts.append(first)
            self._lasts.append(last)
            self._counts.append(count)

    @property
    def first(self) -> int:
        """The first offset; 0 if nothing is acquired."""
        return self._firsts[0] if self._firsts else 0

    def among(self, offsets: Sequence[int]) -> tuple[list[int], list[int]]:
        """The places of the acquired ones in ``offsets``, which go up, and their delivery counts."""
        places: list[int] = []
        counts: list[int] = []
        if offsets:
            for number in range(
                bisect_left(self._lasts, offsets[0]), bisect_right(self._firsts, offsets[-1])
            ):
                start = bisect_left(offsets, self._firsts[number])
                stop = bisect_right(offsets, self._lasts[number], lo=start)
                places += range(start, stop)
                counts += repeat(self._counts[number], stop - start)
        return places, counts

    def between(self, start: int, end: int) -> Iterator[Run]:
        """The acquired runs from ``start`` to before ``end``."""
        for number in range(bisect_left(self._lasts, start), bisect_left(self._firsts, end)):
            yield max(self._firsts[number], start), min(self._lasts[number], end - 1)

    def without(self, offsets: Iterable[int], start: int, end: int) -> Iterator[Run]:
        """The rest of the acquired runs from ``start`` to before ``end`` without ``offsets``, which go up."""
        there = iter(offsets)
        offset = next(there, None)
        for first, last in self.between(start, end):
            while offset is not None and offset <= last:
                if first < offset:
                    yield first, offset - 1
                first = max(first, offset + 1)
                offset = next(there, None)
            if first <= last:
                yield first, last
