"""Chooses the segments that are cleaned into one.

Segments shrink when they are cleaned, so neighbours are merged while the result can't outgrow a segment: by the sizes
before cleaning, the log stays within ``segment.bytes``, each index within ``segment.index.bytes``, and the offsets
within an index entry's int32. Source: ``groupSegmentsBySize`` in Kafka's Cleaner.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.log.config import LogConfig
from ottla_broker.log.index import MAX_RELATIVE
from ottla_broker.log.segment import LogSegment


def group_segments(
    segments: Sequence[LogSegment], config: LogConfig, end_offset: int
) -> list[list[LogSegment]]:
    """``segments`` in groups of neighbours; one that is too large by itself is a group.

    ``end_offset`` is the base offset after the last segment.
    """
    ends = [*(each.base_offset for each in segments), end_offset][1:]
    groups: list[list[LogSegment]] = []
    size = index_size = time_index_size = 0
    for segment, end in zip(segments, ends, strict=True):
        size += segment.size
        index_size += segment.offset_index.byte_size
        time_index_size += segment.time_index.byte_size
        if (
            groups
            and size <= config.segment_bytes
            and max(index_size, time_index_size) <= config.segment_index_bytes
            and (not segment.size or end - 1 - groups[-1][0].base_offset <= MAX_RELATIVE)
        ):
            groups[-1].append(segment)
        else:
            groups.append([segment])
            size = segment.size
            index_size, time_index_size = segment.offset_index.byte_size, segment.time_index.byte_size
    return groups
