"""From two sets of offsets to ranges that the log still has, split into tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import Final

from ottla_client import TopicPartition
from ottla_client.errors import ClientError
from ottla_pipeline.reading.ranges import OffsetRange, SegmentPlace

from . import loss
from .cluster_queries import ClusterQueries, LogEnd, ids_of, select, sizes_unavailable
from .errors import OptionError, SourceError
from .loss import Loss
from .offsets import Offsets
from .options import SourceOptions, Splits

log = logging.getLogger("ottla_pipeline")

TOGETHER_OFFSETS: Final = 20_000
TOGETHER_BYTES: Final = 4 * 1024 * 1024
"""Of one task; as stored in the log."""
TOGETHER_RANGES: Final = 16
"""Each range asks a leader or opens files, so many are better spread over tasks."""


@dataclass(frozen=True)
class Plan:
    """The ranges that a batch reads, in the order of topics, partitions and offsets, and what is lost."""

    ranges: tuple[OffsetRange, ...]
    losses: tuple[Loss, ...] = ()
    tasks: tuple[tuple[OffsetRange, ...], ...] = ()
    """The same ranges, by task."""


def plan(cluster: ClusterQueries, options: SourceOptions, start: Offsets, end: Offsets) -> Plan:
    """The ranges between two offsets: the same at every call, if ``end`` has bytes and nothing is lost.

    A partition that ``start`` doesn't have is new, and read from its beginning. Raises DataLoss for records that are
    gone if ``failOnDataLoss`` is true; otherwise the plan leaves them out.
    """
    gone = start.of.keys() - end.of.keys()
    replaced = loss.other_topics(start.ids, end.ids)
    if not gone and not replaced and all(at == start.of.get(each, 0) for each, at in end.of.items()):
        return Plan(())
    logs = _look(cluster, options, end)
    lost = [loss.deletion(each, start.of[each], None) for each in sorted(gone)]
    ranges: list[OffsetRange] = []
    for partition, last in sorted(end.of.items()):
        first = start.of.get(partition, 0)
        if partition.topic in replaced and partition in start.of:
            lost.append(loss.recreated(partition, first, None))
            first = 0
        if last > first:
            found, losses = logs.between(partition, first, last)
            ranges += found
            lost += losses
        elif last < first:
            lost.append(loss.truncation(partition, first, last))
    loss.report(lost, options.fail_on_data_loss)
    partitions = {each.topic_partition for each in ranges}
    bytes_per_offset = end.bytes
    if bytes_per_offset is None:
        bytes_per_offset = estimate_bytes_per_offset(cluster, options, partitions, logs.earliest, logs.ends)
    places = _places(cluster, options, partitions)
    ranges = [replace(each, segments=places.get(each.topic_partition)) for each in ranges]
    pieces = tuple(split(ranges, options.splits, bytes_per_offset))
    return Plan(pieces, tuple(lost), pack(pieces, options.splits, bytes_per_offset))


@dataclass(frozen=True)
class _Logs:
    """The logs of a batch's partitions as brokers report them now, except those that are gone."""

    ids: Mapping[str, str]
    made_again: Collection[str]
    """Topics that have the name, and not the id, of the batch's."""
    earliest: Mapping[TopicPartition, int]
    ends: Mapping[TopicPartition, LogEnd]

    def between(
        self, partition: TopicPartition, first: int, last: int
    ) -> tuple[list[OffsetRange], list[Loss]]:
        """The range that the log still has between two offsets, if any, and what is lost of it."""
        topic = partition.topic
        if topic in self.made_again:
            return [], [loss.recreated(partition, first, last)]
        if partition not in self.ends:
            return [], [loss.deletion(partition, first, last)]
        losses = []
        earliest, end = self.earliest[partition], self.ends[partition]
        if first < earliest:
            losses.append(loss.retention(partition, first, earliest, last))
            first = min(earliest, last)
        if end.offset < last:
            losses.append(loss.truncation(partition, last, max(end.offset, first)))
            last = max(end.offset, first)
        found = OffsetRange(
            topic, self.ids.get(topic, ""), partition.partition, first, last, end.leader_epoch
        )
        return [found] if found.count else [], losses


def _look(cluster: ClusterQueries, options: SourceOptions, end: Offsets) -> _Logs:
    topics = cluster.topics(replace(options.topics, names=tuple(end.topics), pattern=None, assigned=()))
    there = set(select(options.topics, topics)) & end.of.keys()
    ids = ids_of(topics)
    return _Logs(ids, loss.other_topics(end.ids, ids), cluster.earliest(there), cluster.ends(there))


def estimate_bytes_per_offset(
    cluster: ClusterQueries,
    options: SourceOptions,
    partitions: Collection[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, LogEnd],
) -> dict[TopicPartition, float]:
    """About how many bytes an offset takes on disk; empty if no option needs it, or brokers don't report sizes.

    Raises OptionError if brokers don't report sizes and the user has set a limit in bytes.
    """
    splits, most = options.splits, options.limits.max_bytes
    if not partitions or (splits.max_bytes is None and most is None):
        return {}
    try:
        stored = cluster.log_sizes(partitions)
    except ClientError as error:
        if not sizes_unavailable(error):
            raise
        if most is not None or not splits.bytes_by_default:
            raise OptionError(
                f"limits in bytes need sizes of logs, which the brokers don't report: {error}; use limits in records"
            ) from error
        log.info("no splits by bytes: %s", error)
        return {}
    return {
        partition: _short(log.size / offsets)
        for partition, log in stored.items()
        if log.size and (offsets := ends[partition].offset - earliest[partition]) > 0
    }


def _short(number: float) -> float:
    """Rounded to four digits, which every checkpoint keeps."""
    return float(f"{number:.4g}")


def _places(
    cluster: ClusterQueries, options: SourceOptions, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, SegmentPlace]:
    if options.segments == "never" or not partitions:
        return {}
    try:
        return cluster.places(partitions)
    except ClientError as error:
        if not sizes_unavailable(error):
            raise
        if options.segments == "always":
            raise SourceError(
                f"segments is always, and the brokers don't report where their files are: {error}"
            ) from error
        log.info("segment files are not read: %s", error)
        return {}


def split(
    ranges: Collection[OffsetRange], splits: Splits, bytes_per_offset: Mapping[TopicPartition, float]
) -> list[OffsetRange]:
    """Pieces of ranges, each within the limits, and about ``min_partitions`` of them at least.

    Pieces of a range differ by one offset at most.
    """
    parts = {}
    for each in ranges:
        wanted = [1]
        if splits.max_records is not None:
            wanted.append(ceil(each.count / splits.max_records))
        if splits.max_bytes is not None:
            size = each.count * bytes_per_offset.get(each.topic_partition, 0.0)
            wanted.append(ceil(size / splits.max_bytes))
        parts[each] = min(max(wanted), each.count)
    short = (splits.min_partitions or 0) - sum(parts.values())
    if short > 0:
        _share(parts, splits.min_partitions or 0)
    return [piece for each in ranges for piece in _pieces(each, parts[each])]


def _share(parts: dict[OffsetRange, int], wanted: int) -> None:
    """Split the larger ranges into more parts, about ``wanted`` in all; ranges too small for two don't count."""
    large = [each for each in parts if each.count > 0]
    total = sum(each.count for each in large)
    small = [each for each in large if round(each.count / total * wanted) <= 1]
    of_large = total - sum(each.count for each in small)
    left = max(1, wanted - sum(parts[each] for each in small))
    for each in large:
        if each not in small:
            share = round(each.count / of_large * left)
            parts[each] = min(each.count, max(parts[each], share))


def _pieces(whole: OffsetRange, parts: int) -> list[OffsetRange]:
    bounds = [whole.start + whole.count * part // parts for part in range(parts + 1)]
    return [replace(whole, start=first, end=last) for first, last in pairwise(bounds) if last > first]


def pack(
    ranges: Iterable[OffsetRange], splits: Splits, bytes_per_offset: Mapping[TopicPartition, float]
) -> tuple[tuple[OffsetRange, ...], ...]:
    """Pack ranges into tasks, one large range or several small ones, in order; the same for equal arguments.

    A task costs Spark and its Python worker about 20 ms, whatever it reads. So one task reads a micro-batch of a few
    thousand records in several partitions sooner than several tasks do.

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
