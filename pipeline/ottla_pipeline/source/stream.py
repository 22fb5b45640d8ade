"""The stream reader: how far the next micro-batch goes, what it reads, and what is told to the consumer group.

Spark makes one in a process of its own for each run of a query, and asks it in this order: ``initialOffset``,
``latestOffset`` (where the batch ends), ``partitions`` (often twice), and ``commit`` of a batch when the next one is
there. Copies of it, made elsewhere, read in the tasks.

The start that ``latestOffset`` is given has always been written to the sink: Spark asks for another batch only when
the last is done. So that is when offsets are committed to the group, under ``Trigger.AvailableNow`` also those of the
last batch; ``commit`` would come a batch later, or never. What a run that was stopped has left out is committed with
the first question of the next one.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from ottla_client.types import TopicPartition

from . import limits, loss
from .broker import Broker, End, ids_of, select
from .errors import spoken
from .groups import GroupCommits
from .offsets import Offsets
from .options import SourceOptions
from .planning import density_of, plan
from .resolving import start_of
from .tasks import RangePartition, batches
from .workers import Carried

if TYPE_CHECKING:
    import pyarrow as pa

log = logging.getLogger("ottla_pipeline")


class OttlaStreamReader(Carried, DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Owned by the process that Spark runs it in; one thread. Subclasses override ``read``.

    ``options`` and ``columns`` go with a copy to the tasks; connections are made when the first question is asked.
    """

    def __init__(self, options: SourceOptions, columns: tuple[str, ...]) -> None:
        self.options = options
        self.columns = columns
        self._broker: Broker | None = None
        self._commits: GroupCommits | None = None
        self._initial: Offsets | None = None
        self._latest: Offsets | None = None
        self._all_there_is: Offsets | None = None
        self._planned: tuple[str, list[InputPartition]] | None = None
        self._last_batch_at: float | None = None
        self._clock: Callable[[], float] = monotonic

    def __getstate__(self) -> dict[str, Any]:
        """What a task needs: no connections."""
        return {
            **self.__dict__,
            "_broker": None,
            "_commits": None,
            "_initial": None,
            "_latest": None,
            "_all_there_is": None,
            "_planned": None,
        }

    @property
    def broker(self) -> Broker:
        """The brokers to ask."""
        if self._broker is None:
            self._broker = Broker(self.options.bootstrap_servers, self.options.client)
        return self._broker

    # ---- what Spark asks

    @spoken
    def initialOffset(self) -> dict[str, Any]:
        """Where a query begins. Asked for twice, and again after a restart: the same while this reader lives; see
        ``offsets`` for what happens then."""
        if self._initial is None:
            topics = self.broker.topics(self.options.topics)
            for name in {*self.options.topics.names, *(each.topic for each in self.options.topics.assigned)}:
                if name not in topics:
                    raise self.broker.missing(name)
            start = start_of(self.broker, self.options, select(self.options.topics, topics))
            self._initial = Offsets(start, ids_of(topics), first=True)
        return self._initial.to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        """The strongest limit, for Spark to give back: it has no way to say several. All of them are kept to."""
        wanted = self.options.limits
        if wanted.max_offsets is not None:
            return ReadMaxRows(wanted.max_offsets)
        if wanted.max_bytes is not None:
            return ReadMaxBytes(wanted.max_bytes)
        if wanted.min_offsets is not None:
            return ReadMinRows(wanted.min_offsets)
        return ReadAllAvailable()

    @spoken
    def prepareForTriggerAvailableNow(self) -> None:
        """The query is to end with what there is at this moment."""
        self._all_there_is, _ = self._now()

    @spoken
    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        """Where the next batch ends; ``start`` itself where there is nothing to read."""
        began = Offsets.of_json(start)
        self._done(began)
        now, lasts = (self._all_there_is, {}) if self._all_there_is is not None else self._now()
        assert now is not None
        self._latest = now
        now = self._held_against(began, now)
        starts = _starts(began, now)
        new = [each for each, at in now.of.items() if at > starts[each]]
        earliest = self.broker.earliest(new)
        sizes = density_of(self.broker, self.options, new, earliest, lasts or self.broker.ends(new))
        # Trigger.Once asks for all there is, whatever the limits; without limits that is what is asked for always.
        if not isinstance(limit, ReadAllAvailable):
            # What retention has taken isn't there to be limited: a batch begins where the log does.
            begin = {each: max(at, earliest.get(each, at)) for each, at in starts.items()}
            now = self._limited(began, now, begin, sizes)
        if now.of == began.of and not loss.other_topics(began.ids, now.ids):
            return start
        sizes = {each: size for each, size in sizes.items() if now.of[each] > starts[each]}
        return replace(now, since=began.of if began.first else None, bytes=sizes).to_json()

    @spoken
    def reportLatestOffset(self) -> dict[str, Any] | None:
        """For the query's progress: where the logs ended when they were last looked at."""
        return None if self._latest is None else self._latest.to_json()

    @spoken
    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The tasks of a batch. Spark asks once more, with equal offsets, to tell where a query goes on."""
        if start == end:
            return []
        asked = f"{start} {end}"
        if self._planned is None or self._planned[0] != asked:
            self._planned = (asked, self._plan(Offsets.of_json(start), Offsets.of_json(end)))
        return self._planned[1]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """In a task: the records of one of ``partitions``."""
        return batches(partition, self.options, self.columns)

    @spoken
    def commit(self, end: dict[str, Any]) -> None:
        """A batch is done; Spark says so when it has made the next one."""
        self._done(Offsets.of_json(end))

    def stop(self) -> None:
        """Close the connections; Spark may well end the process instead."""
        if self._broker is not None:
            self._broker.close()

    # ---- how

    def _plan(self, start: Offsets, end: Offsets) -> list[InputPartition]:
        if start.first and end.first:
            return []
        if start.first and end.since is not None:
            start = Offsets(end.since, end.ids, first=True)
        self._done(start)
        return [RangePartition(ranges) for ranges in plan(self.broker, self.options, start, end).tasks]

    def _done(self, offsets: Offsets) -> None:
        """All before these offsets is in the sink."""
        if offsets.first or not self.options.commit_offsets or self.options.group is None:
            return
        if self._commits is None:
            self._commits = GroupCommits(
                self.broker, self.options.group, required=self.options.commit_required
            )
        self._commits.done(offsets.of)

    def _now(self) -> tuple[Offsets, dict[TopicPartition, End]]:
        """Where the logs end now."""
        topics = self.broker.topics(self.options.topics)
        ends = self.broker.ends(select(self.options.topics, topics), self.options.isolation)
        return Offsets({each: end.offset for each, end in ends.items()}, ids_of(topics)), ends

    def _held_against(self, start: Offsets, now: Offsets) -> Offsets:
        """``now``, if nothing has been lost since ``start``. Raises LossError, if that is wanted; the plan logs it.

        An end before the start may come from a broker that lags behind, so it is asked again some times.
        """
        other = loss.other_topics(start.ids, now.ids)
        tries = self.options.offset_retries
        while True:
            back = {
                each: at
                for each, at in now.of.items()
                if at < start.of.get(each, 0) and each.topic not in other
            }
            if back and self.options.isolation == "read_committed":
                # Open transactions hold back what may be read, also behind what was read without this isolation.
                highest = self.broker.latest(back)
                held = {each: start.of[each] for each in back if highest[each] >= start.of[each]}
                now = replace(now, of={**now.of, **held})
                back = {each: highest[each] for each in back if each not in held}
            if not back or not tries:
                break
            tries -= 1
            sleep(self.options.offset_retry_seconds)
            now = replace(now, of={**now.of, **self.broker.latest(back, self.options.isolation)})
        if self.options.fail_on_data_loss:
            lost = [loss.truncation(each, start.of[each], at) for each, at in back.items()]
            lost += [loss.deletion(each, at, None) for each, at in start.of.items() if each not in now.of]
            lost += [
                loss.recreated(each, at, None)
                for each, at in start.of.items()
                if each.topic in other and each in now.of
            ]
            loss.report(lost, True)
        return now

    def _limited(
        self,
        start: Offsets,
        now: Offsets,
        begin: Mapping[TopicPartition, int],
        sizes: Mapping[TopicPartition, float],
    ) -> Offsets:
        """The part of what there is from ``begin`` on that makes the next batch, by the limits; ``start`` for none."""
        wanted = self.options.limits
        if self._waits(limits.together(begin, now.of)):
            return start
        of: Mapping[TopicPartition, int] = now.of
        if wanted.max_offsets is not None:
            of = limits.by_offsets(begin, of, wanted.max_offsets)
        if wanted.max_bytes is not None:
            of = limits.by_bytes(begin, of, wanted.max_bytes, sizes)
        return replace(now, of=of)

    def _waits(self, offsets: int) -> bool:
        """Whether there is too little yet for a batch. The first is not waited for, nor what is to be done now."""
        wanted = self.options.limits
        if wanted.min_offsets is None or self._all_there_is is not None:
            return False
        now = self._clock()
        last = self._last_batch_at
        if offsets < wanted.min_offsets and last is not None and now - last < wanted.max_delay:
            return True
        self._last_batch_at = now
        return False


def _starts(start: Offsets, now: Offsets) -> dict[TopicPartition, int]:
    """Where each partition that there is now goes on: at its beginning where it is new, or its topic is another."""
    other = loss.other_topics(start.ids, now.ids)
    return {each: 0 if each.topic in other else start.of.get(each, 0) for each in now.of}
