"""Writes one task's rows: skips those that an earlier try has written, and sets aside those that are too large."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from ottla_client import BatchDeliveryError
from ottla_client.errors import RecordTooLargeError, RequestTimeoutError
from ottla_client.sync import Producer

from .errors import WriteError
from .large import LargeRecords
from .lookback import LookBack, TopicState
from .replay import WrittenRecords, digests_of
from .rows import Layout, Rows, joined

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla_client.sync import BatchDelivery

    from .identity import Identity
    from .options import WriteOptions


@dataclass
class WriteTally:
    """A task's counts, by topic. ``topics`` are marked as done when all tasks have finished."""

    topics: set[str] = field(default_factory=set)
    written: Counter[str] = field(default_factory=Counter)
    already: Counter[str] = field(default_factory=Counter)
    """Rows that an earlier try had written."""
    too_large: Counter[str] = field(default_factory=Counter)
    unmatched: Counter[str] = field(default_factory=Counter)
    """Records of an earlier try that are no longer among the rows."""


@contextmanager
def producer(servers: str, arguments: dict[str, Any]) -> Iterator[Producer]:
    """A producer that discards its buffer once something has failed."""
    made = Producer(servers, **arguments)
    made.start()
    try:
        yield made
    except BaseException:
        # What is still in the buffer is meant to be lost: the error that is raised says that the write has failed.
        with suppress(RequestTimeoutError):
            made.close(timeout=0)
        raise
    made.close()


class TaskWriter:
    """Writes the rows of one task. Everything is acknowledged when ``write`` returns. One thread's."""

    def __init__(self, options: WriteOptions, layout: Layout, identity: Identity) -> None:
        self._options = options
        self._layout = layout
        self._identity = identity
        self._skipping = options.skip_replayed != "never"
        self._arguments = options.producer()
        self._large = LargeRecords(options)
        self._producer: Producer | None = None
        self._topics: dict[str, TopicState] = {}
        self._pending: deque[tuple[BatchDelivery, Rows]] = deque()
        self.tally = WriteTally()

    def write(self, batches: Iterable[pa.RecordBatch]) -> WriteTally:
        """Write all batches. Raises WriteError, RecordTooLarge, ClientError."""
        with ExitStack() as stack:
            for batch in batches:
                if not batch.num_rows:
                    continue
                if self._producer is None:
                    self._producer = stack.enter_context(
                        producer(self._options.bootstrap_servers, self._arguments)
                    )
                for rows in self._layout.split(batch):
                    self._put(rows)
                    self._check_deliveries(wait=False)
            # Here the broker's refusals of large records show; their dead letters are sent then.
            while self._pending:
                self._check_deliveries(wait=True)
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
            large = self._large.among(rows, own)
            if large.any():
                self._set_aside(rows.take(large))
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

    def _check_deliveries(self, *, wait: bool) -> None:
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

    def _set_aside(self, rows: Rows, errors: list[str] | None = None) -> None:
        """Handle records that are too large: for the broker, with its ``errors``, or for the producer."""
        letters = self._large.set_aside(rows, errors)
        self.tally.too_large[rows.topic] += len(rows)
        for each in letters:
            self._put(each)

    def _look_back(self, topic: str) -> TopicState:
        if not self._skipping:
            return TopicState(WrittenRecords())
        assert self._producer is not None
        # Creates the topic if the broker allows that, and waits for its metadata.
        partitions = self._producer.partitions_for(topic)
        looking = LookBack(
            self._options,
            self._identity,
            whole_batch=self._options.skip_replayed == "batch",
            set_marks=True,
        )
        with looking.marks() as marks:
            return looking.topic(marks, topic, partitions)
