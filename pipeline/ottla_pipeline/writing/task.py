"""Writes one task's rows: skips those that an earlier try has written, and sets aside those that are too large."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ottla_client import BatchDeliveryError, TopicPartition
from ottla_client.errors import RecordTooLargeError, RequestTimeoutError
from ottla_client.sync import Producer
from ottla_pipeline.source import kafka

from .errors import RecordTooLarge, WriteError
from .identity import Identity, Kind
from .large import PART, dead_letters, records_of
from .marks import BEGUN, DONE, Mark, Marks
from .replay import Already, digests_of, find
from .rows import BATCH_OVERHEAD, Layout, Rows, header_size, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla_client.sync import BatchDelivery

    from .options import WriteOptions


@dataclass
class Tally:
    """A task's counts, by topic. ``topics`` are marked as done when all tasks have finished."""

    topics: set[str] = field(default_factory=set)
    written: Counter[str] = field(default_factory=Counter)
    already: Counter[str] = field(default_factory=Counter)
    """Rows that an earlier try had written."""
    too_large: Counter[str] = field(default_factory=Counter)
    unmatched: Counter[str] = field(default_factory=Counter)
    """Records of an earlier try that are no longer among the rows."""


@dataclass
class _Topic:
    """What is known of a topic before its first row is sent."""

    already: Already
    finished: bool = False
    """The topic has the whole batch: it finished, and only Spark doesn't know."""
    passed: bool = False
    """The topic has a later batch as well, whose marks stay."""


@contextmanager
def _producer(servers: str, arguments: dict[str, Any]) -> Iterator[Producer]:
    """A producer that discards its buffer once something has failed."""
    producer = Producer(servers, **arguments)
    producer.start()
    try:
        yield producer
    except BaseException:
        with suppress(RequestTimeoutError):
            producer.close(timeout=0)
        raise
    producer.close()


class TaskWriter:
    """Writes the rows of one task. Everything is acknowledged when ``write`` returns. One thread's."""

    def __init__(self, options: WriteOptions, layout: Layout, identity: Identity) -> None:
        self._options = options
        self._layout = layout
        self._identity = identity
        self._skipping = options.skip_replayed != "never"
        self._arguments = options.producer()
        self._buffer: int = self._arguments.get("buffer_memory", 33_554_432)
        self._limit: int = min(self._arguments.get("max_request_size", 1_048_576), self._buffer)
        self._producer: Producer | None = None
        self._topics: dict[str, _Topic] = {}
        self._pending: deque[tuple[BatchDelivery, Rows]] = deque()
        self.tally = Tally()

    def write(self, batches: Iterable[pa.RecordBatch]) -> Tally:
        """Write all batches. Raises WriteError, RecordTooLarge, ClientError."""
        with ExitStack() as stack:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if self._producer is None:
                    self._producer = stack.enter_context(
                        _producer(self._options.bootstrap_servers, self._arguments)
                    )
                for rows in self._layout.split(batch):
                    self._put(rows)
                    self._settle(wait=False)
            # Here the broker's refusals of large records show; their dead letters are sent then.
            while self._pending:
                self._settle(wait=True)
        for name, topic in self._topics.items():
            # Rows that other tasks have written may come to them again.
            if self._options.skip_replayed == "task" and len(topic.already):
                self.tally.unmatched[name] = len(topic.already)
        return self.tally

    def _put(self, rows: Rows) -> None:
        topic = self._topics.get(rows.topic)
        if topic is None:
            topic = self._topics[rows.topic] = self._look_back(rows.topic)
            if not topic.passed:
                self.tally.topics.add(rows.topic)
        if topic.finished:
            self.tally.already[rows.topic] += len(rows)
            return
        if len(topic.already):
            there = topic.already.take(digests_of(rows))
            self.tally.already[rows.topic] += int(there.sum())
            rows = rows.take(~there)
        own = self._identity.header(rows.partition is not None) if self._skipping else None
        if len(rows):
            large = rows.sizes(header_size(own) if own else 0) + BATCH_OVERHEAD > self._limit
            if large.any():
                self._set_aside(rows.take(large), None)
                rows = rows.take(~large)
        if not len(rows):
            return
        assert self._producer is not None
        delivery = self._producer.send_batch(
            rows.topic,
            rows.value_list(),
            keys=rows.key_list(),
            partition=rows.partition,
            headers=joined(rows.header_lists(), own, len(rows)),
        )
        self._pending.append((delivery, rows))

    def _settle(self, *, wait: bool) -> None:
        """Check finished deliveries in order; with ``wait``, wait for the first one."""
        while self._pending and (wait or self._pending[0][0].done()):
            wait = False
            delivery, rows = self._pending.popleft()
            try:
                delivery.result()
            except BatchDeliveryError as error:
                self._refused(error, rows)
            else:
                self.tally.written[rows.topic] += len(rows)

    def _refused(self, error: BatchDeliveryError, rows: Rows) -> None:
        """The broker refused some of ``rows``: set aside those too large for the topic; other errors end the task."""
        reasons: dict[int, str] = {}
        for places, why in error.failed:
            if not isinstance(why, RecordTooLargeError):
                raise WriteError(str(error)) from why
            reasons.update((place, str(why)) for place in places)
        large = np.zeros(len(rows), np.bool_)
        large[list(reasons)] = True
        self.tally.written[rows.topic] += len(rows) - len(reasons)
        self._set_aside(rows.take(large), [reasons[place] for place in sorted(reasons)])

    def _set_aside(self, rows: Rows, errors: list[str] | None) -> None:
        """Handle records that are too large: for the broker, with its ``errors``, or for the producer."""
        what = self._options.on_too_large
        if errors is None:
            sizes = rows.sizes(0).tolist()
            name = "kafka.max.request.size" if self._limit < self._buffer else "kafka.buffer.memory"
            errors = [
                f"a record for topic {rows.topic} is about {size} bytes, more than {name} ({self._limit}): raise that "
                "and, if it is lower, the topic's max.message.bytes"
                for size in sizes
            ]
        if what == "fail":
            raise RecordTooLarge(f"{errors[0]}; or set onTooLarge to skip or deadletter")
        target = self._options.dead_letter_topic
        if target is not None and rows.topic == target:
            raise RecordTooLarge(f"a part of a dead letter is too large for topic {target}: {errors[0]}")
        self.tally.too_large[rows.topic] += len(rows)
        if target is not None:
            part = max(1, min(PART, self._limit // 2))
            for record in records_of(rows, errors):
                self._put(dead_letters(record, target, part))

    def _look_back(self, topic: str) -> _Topic:
        """Before the first row for ``topic``: mark where the batch begins there, or find what it has written."""
        if not self._skipping:
            return _Topic(Already())
        assert self._producer is not None
        identity = self._identity
        # Creates the topic if the broker allows that, and waits for its metadata.
        partitions = [TopicPartition(topic, number) for number in self._producer.partitions_for(topic)]
        client = kafka.client_options(self._options.client)
        timeout = kafka.call_timeout(self._options.client)
        with Marks(self._options.bootstrap_servers, client, identity.group, timeout) as marks:
            # In this order: tasks set a mark before they write, so without a mark none of this batch has written yet.
            ends = marks.ends(partitions)
            every = marks.read()
            mine = {partition: every[partition] for partition in partitions if partition in every}
            self._refuse(topic, mine)
            done = max((mark.batch for mark in mine.values() if mark.state == DONE), default=-1)
            if done >= identity.batch:
                return _Topic(Already(), finished=True, passed=done > identity.batch)
            if not mine and (every or identity.first):
                begun = {p: Mark(end, BEGUN, identity.batch, identity.run) for p, end in ends.items()}
                marks.set(begun)
                return _Topic(Already())
            if identity.attempt == 0 and self._is_new(marks, every, mine):
                return _Topic(Already())
            spans = self._spans(marks, ends, mine)
            found = find(
                {"bootstrap_servers": self._options.bootstrap_servers, **client},
                spans,
                identity,
                self._options.skip_replayed == "batch",
            )
            if not mine:
                # No run: other tasks have to search as well.
                marks.set({p: Mark(start, BEGUN, identity.batch, "-") for p, (start, _) in spans.items()})
            return _Topic(found)

    def _refuse(self, topic: str, mine: dict[TopicPartition, Mark]) -> None:
        """Raise WriteError if earlier records can't be distinguished from those to write."""
        identity = self._identity
        for mark in mine.values():
            if mark.batch == identity.batch and identity.beside(mark.run):
                raise WriteError(
                    f"batch {identity.batch} is written to topic {topic} by two writes inside foreachBatch, or by one "
                    "that is tried again there, and they can't be distinguished: set txnAppId (another one for each) "
                    "and txnVersion (the batch's number)"
                )
            if identity.kind is Kind.NAMED and mark.state == BEGUN and mark.batch > identity.batch:
                raise WriteError(
                    f"txnVersion is {identity.batch}, and {mark.batch} has begun in topic {topic} and is not done: "
                    "write that to its end first"
                )

    def _is_new(
        self, marks: Marks, every: dict[TopicPartition, Mark], mine: dict[TopicPartition, Mark]
    ) -> bool:
        """Whether a topic with the marks ``mine`` can't have anything of the batch from before this run."""
        identity = self._identity
        if any(mark.state == BEGUN and mark.run == identity.run for mark in mine.values()):
            return True
        if identity.kind is Kind.STREAM:
            # Within a run, a batch comes once, after the previous one has finished.
            return any(mark.state == DONE and mark.run == identity.run for mark in every.values())
        # An earlier try would have set its mark first.
        if not mine or any(mark.batch >= identity.batch for mark in mine.values()):
            return False
        marks.set({p: Mark(mark.offset, BEGUN, identity.batch, identity.run) for p, mark in mine.items()})
        return True

    def _spans(
        self, marks: Marks, ends: dict[TopicPartition, int], mine: dict[TopicPartition, Mark]
    ) -> dict[TopicPartition, tuple[int, int]]:
        """Where to search: after the mark, or the tail if there is no valid mark.

        A broker drops marks when a stream stands still for longer than it keeps a group's offsets, and a topic that was
        created again makes them invalid. A partition without a mark, while others have theirs, is a new one.
        """
        most = self._options.look_back
        starts = marks.starts(list(ends))
        spans = {}
        for partition, end in ends.items():
            first = starts[partition]
            mark = mine.get(partition)
            if not mine or (mark is not None and mark.offset > end):
                spans[partition] = (max(first, end - most), end)
            else:
                start = max(first, 0 if mark is None else mark.offset)
                spans[partition] = (start, min(end, start + most))
        return spans
