"""The log's side of an audit: which offsets have a record, and checksums of the landed parts."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, pairwise

import numpy as np

from ottla_pipeline.landing.ledger import LandedRange
from ottla_pipeline.reading import CorruptBatch, OffsetRange, ReadSettings, read
from ottla_pipeline.reading.checksum import Checksum

from .runs import OffsetCounts, Runs


@dataclass(frozen=True)
class Scan:
    offsets: Runs
    corrupt: Runs
    """Offsets in batches that can't be decoded."""
    sums: Sequence[Checksum | None]
    """Of the records of each landed range; None if the scan began after its start."""


@dataclass
class Stop:
    """Asks the scanning threads to end."""

    wanted: bool = field(default=False)


def scan(
    span: OffsetRange,
    settings: ReadSettings,
    landed: Sequence[LandedRange],
    advance: Callable[[int], None],
    stop: Stop,
) -> Scan:
    """Read a range once, as far as it goes; memory is bounded by the number of commits.

    ``advance`` gets the number of offsets read since its last call. Raises ReadError. The result of a stopped scan is
    meaningless.
    """
    # Sums are computed for the pieces between all starts and ends of ranges, and added up for each range.
    bounds = sorted({offset for commit in landed for offset in (commit.start, commit.end)})
    edges = np.array(bounds, np.int64)
    pieces = [Checksum() for _ in range(len(bounds) + 1)]
    counts, corrupt = OffsetCounts(), OffsetCounts()

    def set_aside(batch: CorruptBatch) -> None:
        corrupt.add_run(batch.first, batch.last + 1)

    come = span.start
    for batch in read(span, settings, set_aside):
        offsets = batch.column("offset").to_numpy()
        counts.add(offsets)
        cuts = [0, *np.searchsorted(offsets, edges).tolist(), len(offsets)]
        for piece, (begin, end) in enumerate(pairwise(cuts)):
            if begin < end:
                pieces[piece] += Checksum.of(batch.slice(begin, end - begin))
        if len(offsets):
            advance(int(offsets[-1]) + 1 - come)
            come = int(offsets[-1]) + 1
        if stop.wanted:
            break
    advance(span.end - come)
    before = list(accumulate(pieces, initial=Checksum()))
    place = {offset: index for index, offset in enumerate(bounds)}
    sums = [
        None
        if commit.start < span.start
        else _between(before[place[commit.start] + 1], before[place[commit.end] + 1])
        for commit in landed
    ]
    return Scan(counts.offsets(), corrupt.offsets(), sums)


def _between(one: Checksum, later: Checksum) -> Checksum:
    return Checksum(later.count - one.count, (later.total - one.total) % (1 << 64))
