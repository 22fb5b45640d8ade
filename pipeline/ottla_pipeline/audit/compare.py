"""What the log has, held against what the table has: no I/O, a partition at a time."""

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
    """What the checksums of a partition say."""

    SAME = "same"
    DIFFERS = "differs"
    UNKNOWN = "unknown"
    """There is nothing to compare: the log has lost those records to retention or compaction, or the table has none."""


@dataclass(frozen=True, slots=True)
class TablePartition:
    """What the table has of a partition."""

    landed: Sequence[LandedRange] = ()
    offsets: Runs = NOTHING
    """Of its rows."""
    doubled: Runs = NOTHING
    """Those of which it has more than one row."""
    surplus: int = 0
    """Rows too many."""
    dead: Runs = NOTHING
    """Records that are dead letters."""
    buried: int = 0
    """How many records became dead letters, as the commits say, wherever they are."""
    dead_batches: Runs = NOTHING
    """Offsets of batches that are dead letters: they could not be decoded."""

    @property
    def extent(self) -> tuple[int, int] | tuple[None, None]:
        """From where to where (exclusive) it was landed; None where nothing was."""
        starts = [commit.start for commit in self.landed]
        ends = [commit.end for commit in self.landed]
        if self.offsets:
            starts.append(int(self.offsets.starts[0]))
            ends.append(int(self.offsets.ends[-1]))
        return (min(starts), max(ends)) if starts else (None, None)


@dataclass(frozen=True, slots=True)
class LogPartition:
    """What the log has of a partition. A partition that isn't there (any more) has ``start`` and ``end`` 0."""

    start: int
    end: int
    offsets: Runs
    """Of its records, without control batches, and without what was aborted where that isn't landed."""
    sums: Sequence[Checksum | None]
    """Of the records of each of the table's commits; None where the log hasn't all of them any more."""
    corrupt: Runs = NOTHING
    """Offsets of batches that can't be decoded."""
    compacted: bool = False
    """Whether the topic is cleaned by compaction, so that records may be gone from it that were landed before."""


@dataclass(frozen=True, slots=True)
class PartitionAudit:
    """How a partition of a topic and the table agree. Offsets of ranges are from start to end, exclusive."""

    topic: str
    partition: int
    log_start: int
    log_end: int
    table_start: int | None
    table_end: int | None
    """Up to where the table has landed the log; None if it has nothing."""
    records: int
    """Records that the log has in the part that is compared."""
    present: int
    """Those of them that the table has."""
    dead: int
    """Those that became dead letters, and aren't in the table."""
    buried: int
    """Records that the commits say became dead letters; those that were replayed are present since."""
    missing: Runs
    doubled: Runs
    surplus: int
    """Rows too many: an offset that is there three times counts two."""
    strange: Runs
    """Offsets of rows where the log has no such record."""
    unreadable: Runs
    """Batches of the log that can't be decoded, and aren't dead letters either."""
    behind: int
    """Offsets that the log has beyond what was landed: not wrong, only later."""
    gone: int
    """Rows of which the log has no record any more, by retention or compaction: neither right nor wrong."""
    checksum: Verdict
    differing: Sequence[tuple[int, int]]
    """The commits whose checksum isn't that of the log."""
    short: Sequence[tuple[int, int]]
    """The commits of which the table has fewer or more rows than they wrote, whatever the log says."""

    @property
    def clean(self) -> bool:
        """Nothing is missing, doubled, strange, unreadable or different."""
        return not (
            self.missing or self.surplus or self.strange or self.unreadable or self.differing or self.short
        )


def compare(
    at: TopicPartition, log: LogPartition, table: TablePartition, *, whole: bool = False
) -> PartitionAudit:
    """Judge a partition.

    What is compared is what was landed, from the table's first commit to its last, as far as the log still has it. With
    ``whole`` it is all that the log has: what was never landed is missing then.
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
    # Beyond the log's end there is nothing that a row could come from; before its start there has been once.
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
        buried=table.buried,
        missing=expected - there - dead,
        doubled=table.doubled,
        surplus=table.surplus,
        strange=beyond if log.compacted else within | beyond,
        unreadable=(log.corrupt - table.dead_batches).between(begin, end),
        behind=max(log.end - (table_end if table_end is not None else log.start), 0),
        gone=expired + (within.count if log.compacted else 0),
        checksum=Verdict.DIFFERS if differing else Verdict.SAME if known else Verdict.UNKNOWN,
        differing=differing,
        short=_short(landed, table),
    )


def _short(landed: Sequence[LandedRange], table: TablePartition) -> list[tuple[int, int]]:
    """The commits that don't have as many offsets in the table and among the dead letters as they wrote."""
    starts = np.array([commit.start for commit in landed], np.int64)
    ends = np.array([commit.end for commit in landed], np.int64)
    there = (table.offsets | table.dead).within(starts, ends).tolist()
    return [
        (commit.start, commit.end)
        for commit, count in zip(landed, there, strict=True)
        if commit.count != count
    ]


def _differing(landed: Sequence[LandedRange], log: LogPartition) -> tuple[list[tuple[int, int]], bool]:
    """The commits whose checksum isn't the log's, and whether any could be compared.

    A topic that is compacted may have lost records of a commit: then it has fewer, and nothing can be said.
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
