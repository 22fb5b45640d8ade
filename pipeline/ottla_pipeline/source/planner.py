"""Micro-batches: how far the next one goes, and the ranges its tasks read."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from math import ceil, floor
from time import monotonic, sleep
from typing import TYPE_CHECKING

from ottla_client import TopicPartition

from . import loss
from .cluster_queries import ClusterQueries, LogEnd, ids_of, select
from .offsets import Offsets
from .options import SourceOptions
from .planning import estimate_bytes_per_offset, plan
from .resolving import start_of

if TYPE_CHECKING:
    from ottla_pipeline.reading.ranges import OffsetRange


class BatchPlanner:
    """Plans batches of a stream or a job, by its options. One thread's; remembers where the logs ended last."""

    def __init__(
        self, cluster: ClusterQueries, options: SourceOptions, clock: Callable[[], float] = monotonic
    ) -> None:
        self._cluster = cluster
        self._options = options
        self._clock = clock
        self._final: Offsets | None = None
        self._last_batch_at: float | None = None
        self.latest: Offsets | None = None
        """The ends of the logs when :meth:`next_end` last looked."""

    def start(self) -> Offsets:
        """The offsets of the options to start at. Raises UnknownTopicError for a topic that doesn't exist."""
        wanted = self._options.topics
        topics = self._cluster.topics(wanted)
        for name in {*wanted.names, *(each.topic for each in wanted.assigned)}:
            if name not in topics:
                raise self._cluster.missing(name)
        offsets = start_of(self._cluster, self._options, select(wanted, topics))
        return Offsets(offsets, ids_of(topics), first=True)

    def stop_at_latest(self) -> None:
        """Let the last batch end where the logs end now."""
        self._final, _ = self._latest_offsets()

    def next_end(self, start: Offsets, *, limited: bool = True) -> Offsets:
        """The end of the batch from ``start``; ``start`` itself if there is nothing to read, or too little yet.

        ``limited``: keep to the options' limits. Raises DataLoss if records are gone and ``failOnDataLoss`` is true.
        """
        end, log_ends = (self._final, {}) if self._final is not None else self._latest_offsets()
        self.latest = end
        end = self._check_loss(start, end)
        starts = _starts(start, end)
        grown = [each for each, at in end.of.items() if at > starts[each]]
        earliest = self._cluster.earliest(grown)
        sizes = estimate_bytes_per_offset(
            self._cluster, self._options, grown, earliest, log_ends or self._cluster.ends(grown)
        )
        if limited:
            # Retention has already removed what lies before the log's start: it counts towards no limit.
            begin = {each: max(at, earliest.get(each, at)) for each, at in starts.items()}
            end = self._limited(start, end, begin, sizes)
        if end.of == start.of and not loss.other_topics(start.ids, end.ids):
            return start
        sizes = {each: size for each, size in sizes.items() if end.of[each] > starts[each]}
        return replace(end, since=start.of if start.first else None, bytes=sizes)

    def tasks(self, start: Offsets, end: Offsets) -> tuple[tuple[OffsetRange, ...], ...]:
        """The ranges between two offsets, by task. Raises DataLoss as :meth:`next_end`."""
        return plan(self._cluster, self._options, start, end).tasks

    def _latest_offsets(self) -> tuple[Offsets, dict[TopicPartition, LogEnd]]:
        topics = self._cluster.topics(self._options.topics)
        ends = self._cluster.ends(select(self._options.topics, topics), self._options.isolation)
        return Offsets({each: end.offset for each, end in ends.items()}, ids_of(topics)), ends

    def _check_loss(self, start: Offsets, end: Offsets) -> Offsets:
        """``end``, corrected where it lies before ``start`` for another reason than lost records.

        A broker that lags behind may report such an end, so the brokers are asked several times. A last stable offset
        may lie before what another isolation level has read. Raises DataLoss if records are gone and
        ``failOnDataLoss`` is true; otherwise the plan logs the loss.
        """
        other = loss.other_topics(start.ids, end.ids)
        tries = self._options.offset_retries
        while True:
            back = {
                each: at
                for each, at in end.of.items()
                if at < start.of.get(each, 0) and each.topic not in other
            }
            if back and self._options.isolation == "read_committed":
                # Where open transactions hold back the last stable offset, the batch ends at its start.
                highest = self._cluster.latest(back)
                held = {each: start.of[each] for each in back if highest[each] >= start.of[each]}
                end = replace(end, of={**end.of, **held})
                back = {each: highest[each] for each in back if each not in held}
            if not back or not tries:
                break
            tries -= 1
            sleep(self._options.offset_retry_seconds)
            end = replace(end, of={**end.of, **self._cluster.latest(back, self._options.isolation)})
        if self._options.fail_on_data_loss:
            lost = [loss.truncation(each, start.of[each], at) for each, at in back.items()]
            lost += [loss.deletion(each, at, None) for each, at in start.of.items() if each not in end.of]
            lost += [
                loss.recreated(each, at, None)
                for each, at in start.of.items()
                if each.topic in other and each in end.of
            ]
            loss.report(lost, True)
        return end

    def _limited(
        self,
        start: Offsets,
        end: Offsets,
        begin: Mapping[TopicPartition, int],
        sizes: Mapping[TopicPartition, float],
    ) -> Offsets:
        """The part between ``begin`` and ``end`` that makes the next batch, by the limits; ``start`` for none."""
        wanted = self._options.limits
        if self._waits(offsets_between(begin, end.of)):
            return start
        of: Mapping[TopicPartition, int] = end.of
        if wanted.max_offsets is not None:
            of = limited_by_offsets(begin, of, wanted.max_offsets)
        if wanted.max_bytes is not None:
            of = limited_by_bytes(begin, of, wanted.max_bytes, sizes)
        return replace(end, of=of)

    def _waits(self, offsets: int) -> bool:
        """Whether to wait for more offsets. The first batch, and one with a fixed end, never wait."""
        wanted = self._options.limits
        if wanted.min_offsets is None or self._final is not None:
            return False
        now = self._clock()
        last = self._last_batch_at
        if offsets < wanted.min_offsets and last is not None and now - last < wanted.max_delay:
            return True
        self._last_batch_at = now
        return False


def _starts(start: Offsets, end: Offsets) -> dict[TopicPartition, int]:
    """Where each partition of ``end`` goes on: new partitions, and those of a recreated topic, start at 0."""
    other = loss.other_topics(start.ids, end.ids)
    return {each: 0 if each.topic in other else start.of.get(each, 0) for each in end.of}


def limited_by_offsets(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], most: int
) -> dict[TopicPartition, int]:
    """Ends that leave ``most`` offsets in all, shared in proportion to what each partition has.

    As in Spark's connector, a partition whose share is below one offset gets one, so that small ones don't starve; the
    sum may exceed ``most`` by that. ``start`` and ``end`` have the same partitions.
    """
    return _shared({each: float(end[each] - start[each]) for each in end}, start, end, float(most))


def limited_by_bytes(
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


def offsets_between(start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> int:
    """The number of offsets between the two."""
    return sum(max(0, at - start[partition]) for partition, at in end.items())
