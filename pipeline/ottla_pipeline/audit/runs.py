"""Sets of offsets as runs, so that a billion of them in a row cost as much as one.

A log assigns consecutive offsets, so a table landed from it has few runs. Only a compacted topic, or a table whose rows
are scattered, has many.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Numbers = NDArray[np.int64]

# Runs that `OffsetCounts` gathers before it merges them: 16 MiB.
_GATHERED = 1 << 20
_NONE: Numbers = np.empty(0, np.int64)


@dataclass(frozen=True, slots=True, eq=False)
class Runs:
    """A set of offsets: runs from ``starts`` to ``ends``, which are exclusive; sorted, and none touches the next."""

    starts: Numbers
    ends: Numbers

    @classmethod
    def of(cls, pairs: Iterable[tuple[int, int]]) -> Runs:
        """From pairs of start and end (exclusive), which may overlap."""
        counts = OffsetCounts()
        for start, end in pairs:
            counts.add_run(start, end)
        return counts.offsets()

    @property
    def count(self) -> int:
        """The number of its offsets."""
        return int((self.ends - self.starts).sum())

    def __bool__(self) -> bool:
        return len(self.starts) > 0

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Runs):
            return NotImplemented
        return np.array_equal(self.starts, other.starts) and np.array_equal(self.ends, other.ends)

    def __hash__(self) -> int:
        return hash((self.starts.tobytes(), self.ends.tobytes()))

    def __iter__(self) -> Iterator[tuple[int, int]]:
        """Its runs, as start and end (exclusive)."""
        return zip(self.starts.tolist(), self.ends.tolist(), strict=True)

    def __sub__(self, other: Runs) -> Runs:
        return _where(_laid(self, other), lambda depth: depth == 1)

    def __and__(self, other: Runs) -> Runs:
        return _where(_laid(self, other), lambda depth: depth == 3)

    def __or__(self, other: Runs) -> Runs:
        return _where(_laid(self, other), lambda depth: depth > 0)

    def within(self, starts: Numbers, ends: Numbers) -> Numbers:
        """The number of its offsets in each range; ranges may overlap."""
        counts: Numbers = np.maximum(self._below(ends) - self._below(starts), 0)
        return counts

    def _below(self, positions: Numbers) -> Numbers:
        """The number of its offsets before each position."""
        lengths = self.ends - self.starts
        before = np.concatenate((np.zeros(1, np.int64), np.cumsum(lengths)))
        run = np.searchsorted(self.starts, positions, side="right")
        over = np.maximum(np.append(self.ends, 0)[run - 1] - positions, 0)
        found: Numbers = before[run] - np.where(run > 0, over, 0)
        return found

    def between(self, start: int, end: int) -> Runs:
        """Its offsets from ``start`` to ``end``, exclusive."""
        if start >= end:
            return NOTHING
        starts, ends = np.clip(self.starts, start, end), np.clip(self.ends, start, end)
        some = starts < ends
        return Runs(starts[some], ends[some])


NOTHING = Runs(_NONE, _NONE)


class OffsetCounts:
    """Counts how often each offset was seen. Offsets come in any order, preferably many at once."""

    def __init__(self) -> None:
        # How often the offsets from each position up to the next one were seen.
        self._steps = _Steps(_NONE, _NONE)
        self._starts: list[Numbers] = []
        self._ends: list[Numbers] = []
        self._gathered = 0

    def add(self, offsets: Numbers) -> None:
        """Count these offsets, which may repeat."""
        if not len(offsets):
            return
        gaps = np.diff(offsets)
        if (gaps < 0).any():
            offsets = np.sort(offsets)
            gaps = np.diff(offsets)
        breaks = np.flatnonzero(gaps != 1)
        starts = offsets[np.concatenate(([0], breaks + 1))]
        ends = offsets[np.concatenate((breaks, [len(offsets) - 1]))] + 1
        self._gather(starts, ends)

    def add_run(self, start: int, end: int) -> None:
        """Count each offset from ``start`` to ``end``, exclusive, once."""
        if start < end:
            self._gather(np.array([start], np.int64), np.array([end], np.int64))

    def offsets(self) -> Runs:
        """Offsets seen at least once."""
        return _where(self._put_together(), lambda depth: depth > 0)

    def repeated(self) -> Runs:
        """Offsets seen more than once."""
        return _where(self._put_together(), lambda depth: depth > 1)

    def surplus(self) -> int:
        """The number of times that an offset was seen again."""
        steps = self._put_together()
        lengths = np.diff(steps.positions)
        more = np.maximum(steps.depths[:-1] - 1, 0)
        return int((lengths * more).sum())

    def _gather(self, starts: Numbers, ends: Numbers) -> None:
        self._starts.append(starts)
        self._ends.append(ends)
        self._gathered += len(starts)
        if self._gathered > _GATHERED:
            self._put_together()

    def _put_together(self) -> _Steps:
        if self._gathered:
            steps = self._steps
            changes = np.diff(steps.depths, prepend=np.int64(0))
            ups, downs = np.concatenate(self._starts), np.concatenate(self._ends)
            self._steps = _summed(
                np.concatenate((steps.positions, ups, downs)),
                np.concatenate((changes, np.ones(len(ups), np.int64), -np.ones(len(downs), np.int64))),
            )
            self._starts.clear()
            self._ends.clear()
            self._gathered = 0
        return self._steps


@dataclass(frozen=True, slots=True)
class _Steps:
    """A number for every offset: ``depths[i]`` from ``positions[i]`` to before the next one, 0 outside."""

    positions: Numbers
    depths: Numbers


def _summed(positions: Numbers, changes: Numbers) -> _Steps:
    """From how much the number changes at each position, in any order."""
    order = np.argsort(positions, kind="stable")
    positions, depths = positions[order], np.cumsum(changes[order])
    if not len(positions):
        return _Steps(positions, depths)
    # Of several changes at one position the last has their sum; and without a change no step follows.
    last = np.append(positions[1:] != positions[:-1], True)
    positions, depths = positions[last], depths[last]
    changed = np.diff(depths, prepend=np.int64(0)) != 0
    return _Steps(positions[changed], depths[changed])


def _laid(one: Runs, other: Runs) -> _Steps:
    """1 where ``one`` is, 2 where ``other`` is, 3 where both are."""
    sizes = len(one.starts), len(one.ends), len(other.starts), len(other.ends)
    changes = np.repeat(np.array([1, -1, 2, -2], np.int64), sizes)
    return _summed(np.concatenate((one.starts, one.ends, other.starts, other.ends)), changes)


def _where(steps: _Steps, wanted: Callable[[Numbers], NDArray[np.bool_]]) -> Runs:
    """The offsets whose number is ``wanted``."""
    if not len(steps.positions):
        return NOTHING
    inside = wanted(steps.depths[:-1])
    starts, ends = steps.positions[:-1][inside], steps.positions[1:][inside]
    if not len(starts):
        return NOTHING
    apart = starts[1:] != ends[:-1]
    return Runs(starts[np.append(True, apart)], ends[np.append(apart, True)])
