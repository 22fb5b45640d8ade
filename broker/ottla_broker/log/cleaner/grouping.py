"""Which segments are cleaned into one.

Segments shrink when they are cleaned, so neighbours are merged while the result can't outgrow a segment: by the sizes
before cleaning, the log stays within ``segment.bytes``, each index within ``segment.index.bytes``, and the offsets
within an index entry's int32. Source: ``groupSegmentsBySize`` in Kafka's Cleaner.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

_MOST_RELATIVE: Final = 2**31 - 1


class Measured(NamedTuple):
    """A segment as grouping measures it; sizes in bytes."""

    base_offset: int
    size: int
    index_size: int
    time_index_size: int


def group_sizes(
    segments: Sequence[Measured], segment_bytes: int, index_bytes: int, end_offset: int
) -> list[int]:
    """How many of ``segments``, in order, each group has; the sum is the number of segments.

    ``end_offset`` is the base offset after the last segment. A segment that is too large by itself is a group.
    """
    ends = [*(each.base_offset for each in segments), end_offset][1:]
    groups: list[int] = []
    base = size = index_size = time_index_size = 0
    for segment, end in zip(segments, ends, strict=True):
        fits = (
            bool(groups)
            and size + segment.size <= segment_bytes
            and index_size + segment.index_size <= index_bytes
            and time_index_size + segment.time_index_size <= index_bytes
            and (segment.size == 0 or end - 1 - base <= _MOST_RELATIVE)
        )
        if fits:
            groups[-1] += 1
        else:
            groups.append(1)
            base = segment.base_offset
            size = index_size = time_index_size = 0
        size += segment.size
        index_size += segment.index_size
        time_index_size += segment.time_index_size
    return groups
