"""Compares the log with the table, one partition at a time, without I/O."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from ottla_client import TopicPartition
from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.reading.checksum import Checksum

from .runs import NOTHING, Runs


class Verdict(StrEnum):
    """The result of comparing a partition's checksums."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """Nothing to compare: retention or compaction has removed the records from the log, or the table has none."""


@dataclass(frozen=True, slots=True)
class TablePartition:
    landed: Sequence[LandedRange] = ()
    offsets: Runs = NOTHING
    """Of its rows."""
    doubled: Runs = NOTHING
    """Offsets with more than one row."""
    surplus: int = 0
    """Rows too many."""
    dead: Runs = NOTHING
    """Records that are dead letters."""
    dead_committed: int = 0
    """The number of records that became dead letters, by the table's commits."""
    dead_batches: Runs = NOTHING
    """Offsets of batches that are dead letters: they could not be decoded."""
    removed: Runs = NOTHING
    """Offsets whose rows other programs have removed."""
    bounds: tuple[int, int] | None = None
    """Where the job began, and the next offset that it will land; None if it hasn't met the partition."""

    @property
    def extent(self) -> tuple[int, int] | tuple[None, None]:
        """The first offset to land and the one after the last landed; None if the job hasn't met the partition."""
        starts = [one.start for one in self.landed]
        ends = [one.end for one in self.landed]
        if self.bounds is not None:
            starts.append(self.bounds[0])
            ends.append(self.bounds[1])
        if self.offsets:
            starts.append(int(self.offsets.starts[0]))
            ends.append(int(self.offsets.ends[-1]))
        return (min(starts), max(ends)) if starts else (None, None)


@dataclass(frozen=True, slots=True)
class LogPartition:
    """A partition as the log has it. If the partition doesn't exist, ``start`` and ``end`` are 0."""

    start: int
    end: int
    offsets: Runs
    """Of its records, without control batches, and with ``read_committed`` without aborted ones."""
    sums: Sequence[Checksum | None]
    """Of the records of each of the table's commits; None if the log no longer has all of them."""
    corrupt: Runs = NOTHING
    """Offsets of batches that can't be decoded."""
    compacted: bool = False
    """Whether the topic is compacted, so that landed records may be gone from it."""


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """The comparison of a partition with the table. Ranges are from start to end, exclusive."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    table_start: int | None
    table_end: int | None
    """Up to where the table has landed the log; None if it has nothing."""
    records: int
    """Records in the compared part of the log."""
    present: int
    """Records of those that the table has."""
    dead: int
    """Records of those that are dead letters, and not in the table."""
    dead_committed: int
    """Records that became dead letters, by the commits; replayed ones are present now."""
    removed: Runs
    """Records whose rows other programs have removed, by their commits: not an error."""
    missing: Runs
    doubled: Runs
    surplus: int
    """Surplus rows: an offset with three rows counts two."""
    strange: Runs
    """Offsets of rows without a record in the log."""
    unreadable: Runs
    """Batches of the log that can't be decoded, and aren't dead letters."""
    skipped: int
    """Offsets in the log before the first that the job was to land: it never will, and that is no error."""
    behind: int
    """Offsets in the log after the last landed one, which the job will land: not an error."""
    gone: int
    """Rows whose record retention or compaction has removed from the log: not an error."""
    checksum: Verdict
    differing: Sequence[tuple[int, int]]
    """The commits whose checksum isn't that of the log."""
    short: Sequence[tuple[int, int]]
    """The commits of which the table has fewer or more rows than they wrote."""

    @property
    def clean(self) -> bool:
        """Nothing is missing, doubled, strange, unreadable or different."""
        return not (
            self.missing or self.surplus or self.strange or self.unreadable or self.differing or self.short
        )


def compare(
    at: TopicPartition, log: LogPartition, table: TablePartition, *, whole: bool = False
) -> PartitionAudit:
    """Compare a partition.

    The compared part is what was landed, from the table's first commit to its last, as far as the log still has it.
    With ``whole`` it is the whole log, so that records that were never landed are missing.
    """
    landed = table.landed
    table_start, table_end = table.extent
    begin, end = log.start, log.end
    if not whole:
        begin = max(begin, table_start if table_start is not None else log.end)
        end = min(end, table_end if table_end is not None else log.end)
    expected = log.offsets.between(begin, end)
    there = table.offsets & expected
    dead = (table.dead & expected) - there
    removed = (table.removed & expected) - there - dead
    # No record is after the log's end; before its start there was one.
    within = table.offsets.between(log.start, log.end) - log.offsets - log.corrupt
    beyond = table.offsets - table.offsets.between(0, log.end)
    expired = table.offsets.between(0, log.start).count
    differing, known = _differing(landed, log)
    return PartitionAudit(
        topic=at.topic,
        partition=at.partition,
        log_start=log.start,
        log_end=log.end,
        table_start=table_start,
        table_end=table_end,
        records=expected.count,
        present=there.count,
        dead=dead.count,
        dead_committed=table.dead_committed,
        removed=removed,
        missing=expected - there - dead - removed,
        doubled=table.doubled,
        surplus=table.surplus,
        strange=beyond if log.compacted else within | beyond,
        unreadable=(log.corrupt - table.dead_batches).between(begin, end),
        skipped=max(min(table_start if table_start is not None else log.start, log.end) - log.start, 0),
        behind=max(log.end - (table_end if table_end is not None else log.start), 0),
        gone=expired + (within.count if log.compacted else 0),
        checksum=Verdict.DIFFERS if differing else Verdict.SAME if known else Verdict.UNKNOWN,
        differing=differing,
        short=_short(landed, table),
    )


def _short(landed: Sequence[LandedRange], table: TablePartition) -> list[tuple[int, int]]:
    """The commits whose number of rows and dead letters differs from what they wrote."""
    starts = np.array([commit.start for commit in landed], np.int64)
    ends = np.array([commit.end for commit in landed], np.int64)
    there = (table.offsets | table.dead | table.removed).within(starts, ends).tolist()
    return [
        (commit.start, commit.end)
        for commit, count in zip(landed, there, strict=True)
        if commit.count != count
    ]


def _differing(landed: Sequence[LandedRange], log: LogPartition) -> tuple[list[tuple[int, int]], bool]:
    """The commits whose checksum isn't the log's, and whether any could be compared.

    Compaction may have removed records of a commit; with fewer records its checksum can't be compared.
    """
    differing = []
    known = False
    for commit, found in zip(landed, log.sums, strict=True):
        if found is None or (log.compacted and found.count < commit.count):
            continue
        known = True
        if found != commit.checksum:
            differing.append((commit.start, commit.end))
    return differing, known
