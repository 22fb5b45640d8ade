"""Compares runs of offsets with Python's sets and counters."""

from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_pipeline.audit import runs
from ottla_pipeline.audit.runs import NOTHING, OffsetCounts, Runs

offsets = st.integers(0, 40)
pieces = st.lists(st.lists(offsets, max_size=20), max_size=8)


def as_set(found: Runs) -> set[int]:
    return {offset for start, end in found for offset in range(start, end)}


def runs_of(numbers: set[int]) -> Runs:
    return Runs.of((number, number + 1) for number in numbers)


@given(pieces)
def test_offsets_are_counted(batches: list[list[int]]) -> None:
    counts, counter = OffsetCounts(), Counter[int]()
    for batch in batches:
        counts.add(np.array(batch, np.int64))
        counter.update(batch)
    assert as_set(counts.offsets()) == set(counter)
    assert counts.offsets().count == len(counter)
    assert as_set(counts.repeated()) == {offset for offset, count in counter.items() if count > 1}
    assert counts.surplus() == counter.total() - len(counter)


@given(pieces)
def test_merging_all_the_time_counts_the_same(batches: list[list[int]]) -> None:
    at_once, often = OffsetCounts(), OffsetCounts()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(runs, "_GATHERED", 0)
        for batch in batches:
            often.add(np.array(batch, np.int64))
    for batch in batches:
        at_once.add(np.array(batch, np.int64))
    assert often.offsets() == at_once.offsets()
    assert often.repeated() == at_once.repeated()
    assert often.surplus() == at_once.surplus()


@given(st.sets(offsets), st.sets(offsets), offsets, offsets)
def test_sets(one: set[int], other: set[int], start: int, end: int) -> None:
    a, b = runs_of(one), runs_of(other)
    assert as_set(a - b) == one - other
    assert as_set(a & b) == one & other
    assert as_set(a | b) == one | other
    assert as_set(a.between(start, end)) == {number for number in one if start <= number < end}
    counted = a.within(np.array([start, end]), np.array([end, start]))
    assert counted.tolist() == [a.between(start, end).count, a.between(end, start).count]
    assert a == runs_of(one)
    assert (a == b) is (one == other)
    assert bool(a) is bool(one)


@given(st.lists(st.tuples(offsets, offsets), max_size=8))
def test_runs_never_touch(pairs: list[tuple[int, int]]) -> None:
    found = list(Runs.of(pairs))
    assert all(start < end for start, end in found)
    assert all(before[1] < after[0] for before, after in pairwise(found))


def test_nothing() -> None:
    assert not NOTHING
    assert NOTHING.count == 0
    assert OffsetCounts().surplus() == 0
    assert not OffsetCounts().repeated()
    assert NOTHING != "nothing"


def test_a_long_run_is_one_run() -> None:
    counts = OffsetCounts()
    for start in range(0, 1_000_000, 100_000):
        counts.add(np.arange(start, start + 100_000, dtype=np.int64))
    assert list(counts.offsets()) == [(0, 1_000_000)]
