"""From offsets to ranges: what is between two sets of offsets, held against what the log has now, split into tasks."""

from __future__ import annotations

import logging
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from math import ceil
from typing import TYPE_CHECKING

from ottla_client.errors import ClientError
from ottla_client.types import TopicPartition

from . import loss
from .broker import Broker, End, ids_of, select, untold
from .errors import OptionError, SourceError
from .loss import Loss
from .offsets import Offsets
from .options import SourceOptions, Splits
from .packing import pack

if TYPE_CHECKING:
    from ottla_pipeline.reading.ranges import Range, SegmentPlace

log = logging.getLogger("ottla_pipeline")


@dataclass(frozen=True)
class Span:
    """Offsets ``start`` to ``end`` (exclusive) of a partition."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def offsets(self) -> int:
        return self.end - self.start


@dataclass(frozen=True)
class Plan:
    """What there is to read, in the order of topics, partitions and offsets, and what there would have been."""

    ranges: tuple[Range, ...]
    losses: tuple[Loss, ...] = ()
    tasks: tuple[tuple[Range, ...], ...] = ()
    """The ranges, as they are shared out."""


def plan(broker: Broker, options: SourceOptions, start: Offsets, end: Offsets) -> Plan:
    """The ranges between two offsets: the same ones whenever it is asked, if ``end`` has bytes and nothing is lost.

    A partition that ``start`` doesn't have is new, and read from its beginning. Raises LossError, if
    ``failOnDataLoss`` is true, for what can't be read any more; otherwise the plan leaves it out.
    """
    gone = start.of.keys() - end.of.keys()
    replaced = loss.other_topics(start.ids, end.ids)
    if not gone and not replaced and all(at == start.of.get(each, 0) for each, at in end.of.items()):
        return Plan(())
    topics = broker.topics(replace(options.topics, names=tuple(end.topics), pattern=None, assigned=()))
    there = set(select(options.topics, topics)) & end.of.keys()
    ids = ids_of(topics)
    lost = [loss.deletion(each, start.of[each], None) for each in sorted(gone)]
    spans = []
    other = loss.other_topics(end.ids, ids)
    earliest = broker.earliest(there)
    ends = broker.ends(there)
    for partition in sorted(end.of):
        first, last = start.of.get(partition, 0), end.of[partition]
        if partition.topic in replaced and partition in start.of:
            lost.append(loss.recreated(partition, first, None))
            first = 0
        if last <= first:
            if last < first:
                lost.append(loss.truncation(partition, first, last))
            continue
        if partition.topic in other:
            lost.append(loss.recreated(partition, first, last))
        elif partition not in there:
            lost.append(loss.deletion(partition, first, last))
        else:
            span, losses = _within(Span(partition, first, last), earliest[partition], ends[partition].offset)
            spans.append(span)
            lost += losses
    loss.report(lost, options.fail_on_data_loss)
    spans = [span for span in spans if span.offsets > 0]
    density = end.bytes
    if density is None:
        density = density_of(broker, options, {span.partition for span in spans}, earliest, ends)
    ranges = ranges_of(broker, options, spans, ids, ends, density)
    return Plan(ranges, tuple(lost), pack(ranges, options.splits, density))


def _within(span: Span, earliest: int, latest: int) -> tuple[Span, list[Loss]]:
    """The part of a span that the log still has, and what it hasn't."""
    losses = []
    start, end = span.start, span.end
    if start < earliest:
        losses.append(loss.retention(span.partition, start, earliest, end))
        start = min(earliest, end)
    if latest < end:
        losses.append(loss.truncation(span.partition, end, max(latest, start)))
        end = max(latest, start)
    return Span(span.partition, start, end), losses


def ranges_of(
    broker: Broker,
    options: SourceOptions,
    spans: Collection[Span],
    ids: Mapping[str, str],
    ends: Mapping[TopicPartition, End],
    density: Mapping[TopicPartition, float],
) -> tuple[Range, ...]:
    """Spans as tasks: split, with all that a reader has to know."""
    from ottla_pipeline.reading.ranges import Range

    places = _places(broker, options, {span.partition for span in spans})
    return tuple(
        Range(
            piece.partition.topic,
            ids.get(piece.partition.topic, ""),
            piece.partition.partition,
            piece.start,
            piece.end,
            ends[piece.partition].leader_epoch,
            places.get(piece.partition),
        )
        for piece in split(spans, options.splits, density)
    )


def density_of(
    broker: Broker,
    options: SourceOptions,
    partitions: Collection[TopicPartition],
    earliest: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, End],
) -> dict[TopicPartition, float]:
    """About how many bytes an offset takes on disk, where that can be known and is of use.

    Raises OptionError where brokers don't tell and an option needs it.
    """
    splits, most = options.splits, options.limits.max_bytes
    if not partitions or (splits.max_bytes is None and most is None):
        return {}
    try:
        stored = broker.stored(partitions)
    except ClientError as error:
        if not untold(error):
            raise
        if most is not None or not splits.bytes_by_default:
            raise OptionError(
                f"limits in bytes need sizes of logs, which the brokers don't tell: {error}; use limits in records"
            ) from error
        log.info("no splits by bytes: %s", error)
        return {}
    return {
        partition: _short(log.size / offsets)
        for partition, log in stored.items()
        if log.size and (offsets := ends[partition].offset - earliest[partition]) > 0
    }


def _short(number: float) -> float:
    """Four digits will do, in each checkpoint."""
    return float(f"{number:.4g}")


def _places(
    broker: Broker, options: SourceOptions, partitions: Collection[TopicPartition]
) -> Mapping[TopicPartition, SegmentPlace]:
    if options.segments == "never" or not partitions:
        return {}
    try:
        return broker.places(partitions)
    except ClientError as error:
        if not untold(error):
            raise
        if options.segments == "always":
            raise SourceError(
                f"segments is always, and the brokers don't tell where their files are: {error}"
            ) from error
        log.info("segment files are not read: %s", error)
        return {}


def split(spans: Collection[Span], splits: Splits, density: Mapping[TopicPartition, float]) -> list[Span]:
    """Pieces of spans, none of them too large, and about ``min_partitions`` of them at least.

    Pieces of a span differ by one offset at most.
    """
    parts = {}
    for span in spans:
        wanted = [1]
        if splits.max_records is not None:
            wanted.append(ceil(span.offsets / splits.max_records))
        if splits.max_bytes is not None:
            wanted.append(ceil(span.offsets * density.get(span.partition, 0.0) / splits.max_bytes))
        parts[span] = min(max(wanted), span.offsets)
    short = (splits.min_partitions or 0) - sum(parts.values())
    if short > 0:
        _share(parts, splits.min_partitions or 0)
    return [piece for span in spans for piece in _pieces(span, parts[span])]


def _share(parts: dict[Span, int], wanted: int) -> None:
    """More parts for the larger spans, so that there are about ``wanted``; spans too small for two don't count."""
    large = [span for span in parts if span.offsets > 0]
    total = sum(span.offsets for span in large)
    small = [span for span in large if round(span.offsets / total * wanted) <= 1]
    of_large = total - sum(span.offsets for span in small)
    left = max(1, wanted - sum(parts[span] for span in small))
    for span in large:
        if span not in small:
            share = round(span.offsets / of_large * left)
            parts[span] = min(span.offsets, max(parts[span], share))


def _pieces(span: Span, parts: int) -> list[Span]:
    bounds = [span.start + span.offsets * part // parts for part in range(parts + 1)]
    return [Span(span.partition, first, last) for first, last in pairwise(bounds) if last > first]
