"""Packs ranges into tasks: one large range, or several small ones.

A task costs Spark and its Python worker about 20 ms, whatever it reads. So one task reads a micro-batch of a few
thousand records in several partitions sooner than several tasks do.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Final

from ottla_client import TopicPartition
from ottla_pipeline.reading.ranges import OffsetRange

from .options import Splits

TOGETHER_OFFSETS: Final = 20_000
TOGETHER_BYTES: Final = 4 * 1024 * 1024
"""As stored in the log."""
TOGETHER_RANGES: Final = 16
"""Each range asks a leader or opens files, so many are better spread over tasks."""


def pack(
    ranges: Iterable[OffsetRange], splits: Splits, bytes_per_offset: Mapping[TopicPartition, float]
) -> tuple[tuple[OffsetRange, ...], ...]:
    """The ranges of each task, in order; the same for equal arguments.

    The ranges of one task are small together. A range of unknown size gets a task of its own, and with
    ``min_partitions`` every range does.
    """
    if splits.min_partitions is not None:
        return tuple((each,) for each in ranges)
    most_offsets = min(TOGETHER_OFFSETS, splits.max_records or TOGETHER_OFFSETS)
    most_bytes = min(TOGETHER_BYTES, splits.max_bytes or TOGETHER_BYTES)
    tasks: list[list[OffsetRange]] = []
    offsets, size = 0, 0.0
    for range in ranges:
        offsets += range.count
        each = bytes_per_offset.get(range.topic_partition)
        size += float("inf") if each is None else each * (range.count)
        room = bool(tasks) and len(tasks[-1]) < TOGETHER_RANGES
        if room and offsets <= most_offsets and size <= most_bytes:
            tasks[-1].append(range)
        else:
            tasks.append([range])
            offsets = range.count
            size = float("inf") if each is None else each * offsets
    return tuple(map(tuple, tasks))
