"""A correct table is clean, and each kind of damage to a partition is reported by name."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from itertools import pairwise

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_client.types import TopicPartition
from ottla_pipeline.audit.compare import (
    LogPartition,
    PartitionAudit,
    TablePartition,
    Verdict,
    compare,
)
from ottla_pipeline.audit.runs import NOTHING, OffsetCounts, Runs
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.reading.checksum import Checksum

# Each example judges a whole partition.
few = settings(max_examples=examples(15))


def runs_of(offsets: Iterable[int]) -> Runs:
    return Runs.of((offset, offset + 1) for offset in offsets)


def sum_of(offsets: Iterable[int]) -> Checksum:
    """Stands for a checksum of the records at these offsets."""
    numbers = list(offsets)
    return Checksum(len(numbers), sum((offset + 1) * 1_000_003 for offset in numbers))


@dataclass
class World:
    """A partition's log and the table that was landed from it."""

    start: int = 0
    end: int = 0
    log: set[int] = field(default_factory=set)
    commits: list[LandedRange] = field(default_factory=list)
    rows: list[int] = field(default_factory=list)
    dead: set[int] = field(default_factory=set)
    compacted: bool = False

    def land(self, start: int, end: int, dead: Iterable[int] = ()) -> None:
        records = {offset for offset in self.log if start <= offset < end}
        found = sum_of(records)
        self.commits.append(LandedRange(start, end, found.count, found.total))
        self.dead |= records & set(dead)
        self.rows += sorted(records - self.dead)

    def audit(self, *, whole: bool = False) -> PartitionAudit:
        checksums = [
            None if commit.start < self.start else sum_of(found)
            for commit in self.commits
            for found in [{offset for offset in self.log if commit.start <= offset < commit.end}]
        ]
        log = LogPartition(self.start, self.end, runs_of(self.log), checksums, compacted=self.compacted)
        counts = OffsetCounts()
        counts.add(np.array(self.rows, np.int64))
        table = TablePartition(
            self.commits, counts.offsets(), counts.repeated(), counts.surplus(), runs_of(self.dead)
        )
        return compare(TopicPartition("flights", 0), log, table, whole=whole)


@st.composite
def landed(draw: st.DrawFn) -> World:
    """A log with holes (control batches), landed up to some place in several commits."""
    start = draw(st.integers(0, 5))
    end = draw(st.integers(start + 10, 40))
    world = World(start, end, draw(st.sets(st.integers(start, end - 1), min_size=4)))
    cuts = sorted(draw(st.sets(st.integers(start, end), min_size=2, max_size=5)))
    dead = draw(st.sets(st.integers(start, end), max_size=3))
    for begin, stop in pairwise(cuts):
        world.land(begin, stop, dead)
    return world


@few
@given(landed())
def test_what_was_landed_well_is_clean(world: World) -> None:
    audit = world.audit()
    assert audit.clean
    assert audit.present == len(world.rows)
    assert audit.dead == len(world.dead)
    assert audit.records == audit.present + audit.dead
    assert audit.behind == world.end - world.commits[-1].end
    assert audit.checksum is Verdict.SAME


@few
@given(landed(), st.data())
def test_a_row_that_is_lost(world: World, data: st.DataObject) -> None:
    if not world.rows:
        return
    lost = data.draw(st.sampled_from(world.rows))
    world.rows.remove(lost)
    audit = world.audit()
    assert not audit.clean
    assert list(audit.missing) == [(lost, lost + 1)]
    assert len(audit.short) == 1
    assert not audit.surplus


@few
@given(landed(), st.data())
def test_rows_that_are_there_twice(world: World, data: st.DataObject) -> None:
    if not world.rows:
        return
    again = data.draw(st.lists(st.sampled_from(world.rows), min_size=1))
    world.rows += again
    audit = world.audit()
    assert not audit.clean
    assert audit.surplus == len(again)
    assert audit.doubled == runs_of(again)
    assert not audit.missing


@few
@given(landed())
def test_a_dead_letter_that_was_replayed_is_a_row(world: World) -> None:
    world.rows += world.dead
    audit = world.audit()
    assert audit.clean
    assert audit.dead == 0
    assert audit.present == audit.records


@few
@given(landed(), st.data())
def test_a_record_that_is_another_one_now(world: World, data: st.DataObject) -> None:
    commit = data.draw(st.sampled_from(world.commits))
    world.commits[world.commits.index(commit)] = replace(commit, total=7)
    audit = world.audit()
    assert not audit.clean
    assert audit.checksum is Verdict.DIFFERS
    assert audit.differing == [(commit.start, commit.end)]


@few
@given(landed(), st.integers(0, 40))
def test_retention_is_no_fault(world: World, start: int) -> None:
    start = min(max(start, world.start), world.end)
    rows = len(world.rows)
    world.start, world.log = start, {offset for offset in world.log if offset >= start}
    audit = world.audit()
    assert audit.clean
    assert audit.gone + audit.present == rows


@few
@given(landed(), st.data())
def test_compaction_is_no_fault(world: World, data: st.DataObject) -> None:
    world.compacted = True
    cleaned = data.draw(st.sets(st.sampled_from(sorted(world.log))))
    world.log -= cleaned
    audit = world.audit()
    assert audit.clean
    assert audit.gone == len(cleaned.intersection(world.rows))


@few
@given(landed(), st.data())
def test_a_row_that_the_log_never_had(world: World, data: st.DataObject) -> None:
    offset = data.draw(st.integers(world.start, 100).filter(lambda offset: offset not in world.log))
    world.rows.append(offset)
    audit = world.audit()
    assert not audit.clean
    assert list(audit.strange) == [(offset, offset + 1)]


@few
@given(landed())
def test_a_log_that_was_cut_off(world: World) -> None:
    """As when the topic was deleted and made again, with fewer records since."""
    read = {offset for offset in world.log if any(each.start <= offset < each.end for each in world.commits)}
    if not read:
        return
    world.end = max(read)
    world.log = {offset for offset in world.log if offset < world.end}
    audit = world.audit()
    assert not audit.clean
    assert audit.checksum is Verdict.DIFFERS


@few
@given(landed())
def test_the_whole_log_is_wanted(world: World) -> None:
    audit = world.audit(whole=True)
    landed = {offset for commit in world.commits for offset in range(commit.start, commit.end)}
    assert audit.missing == runs_of(world.log - landed)
    assert audit.clean is (world.log <= landed)


def test_nothing_was_landed() -> None:
    world = World(0, 3, {0, 1, 2})
    audit = world.audit()
    assert audit.clean
    assert audit.checksum is Verdict.UNKNOWN
    assert (audit.table_start, audit.table_end, audit.behind, audit.records) == (None, None, 3, 0)
    assert list(world.audit(whole=True).missing) == [(0, 3)]


def test_rows_without_a_commit_that_tells_of_them() -> None:
    world = World(0, 3, {0, 1, 2}, rows=[1, 2])
    audit = world.audit()
    assert (audit.table_start, audit.table_end, audit.present) == (1, 3, 2)
    assert audit.clean


def test_a_partition_that_is_in_no_topic() -> None:
    audit = compare(
        TopicPartition("flights", 9),
        LogPartition(0, 0, NOTHING, [None]),
        TablePartition([LandedRange(0, 2, 2, 1)], Runs.of([(0, 2)])),
    )
    assert list(audit.strange) == [(0, 2)]
