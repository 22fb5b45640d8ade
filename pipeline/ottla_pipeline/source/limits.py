"""Limits of a micro-batch in offsets and bytes, shared among its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from math import ceil, floor

from ottla_client import TopicPartition


def by_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends that leave ``most`` offsets in all, shared in proportion to what each partition has.

    As in Spark's connector, a partition whose share is below one offset gets one, so that small ones don't starve; the
    sum may exceed ``most`` by that. ``start`` and ``end`` have the same partitions.
    """
    return _shared({each: float(end[each] - start[each]) for each in end}, start, end, float(most))


def by_bytes(
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    most: int,
    bytes_per_offset: Mapping[TopicPartition, float],
) -> dict[TopicPartition, int]:
    """Ends that leave about ``most`` bytes; a partition without ``bytes_per_offset`` isn't limited."""
    known = {each: at for each, at in end.items() if bytes_per_offset.get(each, 0.0) > 0}
    sizes = {each: (at - start[each]) * bytes_per_offset[each] for each, at in known.items()}
    return {**end, **_shared(sizes, start, known, float(most))}


def _shared(
    sizes: Mapping[TopicPartition, float],
    start: Mapping[TopicPartition, int],
    end: Mapping[TopicPartition, int],
    most: float,
) -> dict[TopicPartition, int]:
    total = sum(size for size in sizes.values() if size > 0)
    if total <= most:
        return dict(end)
    part = most / total
    ends = {}
    for partition, last in end.items():
        share = (last - start[partition]) * part
        # Floating point must not go beyond the end.
        ends[partition] = min(last, start[partition] + (ceil(share) if share < 1 else floor(share)))
    return ends


def together(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """How many offsets lie between the two."""
    return sum(max(0, at - start[partition]) for partition, at in end.items())
