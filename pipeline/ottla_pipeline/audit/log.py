"""The log's side of an audit: which offsets have a record, and the checksums of the parts that commits have landed."""

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
    """What was found in a range."""

    offsets: Runs
    corrupt: Runs
    """Those in batches that can't be decoded."""
    sums: Sequence[Checksum | None]
    """Of the records of each commit that was asked for; None where the range doesn't begin early enough for it."""


@dataclass
class Stop:
    """Says to those who read that they may end."""

    wanted: bool = field(default=False)


def scan(
    span: OffsetRange,
    settings: ReadSettings,
    landed: Sequence[LandedRange],
    tell: Callable[[int], None],
    stop: Stop,
) -> Scan:
    """Read a range once, as far as it goes; memory is bounded by the number of commits.

    ``tell`` gets the number of offsets that were gone through since it was last told. Raises ReadError. Of a scan that
    was stopped the result means nothing.
    """
    # A commit's sum is put together from pieces: what lies between the places where any of them begins or ends.
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
            tell(int(offsets[-1]) + 1 - come)
            come = int(offsets[-1]) + 1
        if stop.wanted:
            break
    tell(span.end - come)
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
