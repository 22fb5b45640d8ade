"""Writes a batch in one transaction: its tasks collect the rows, and the driver sends them (``transactional``).

A transaction belongs to one producer, and a producer to one process. So the rows of all tasks come to the driver with
the tasks' reports. Its transaction has all records of the batch, and the marks that the batch is done as offsets of the
writer's group: a batch that runs again finds either both or neither. A producer with the same transactional id begins
by ending what an earlier try has left open, and no producer before it can commit any more.

docs/decisions/0014 has the argument, and the alternatives.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import ExitStack
from typing import TYPE_CHECKING

import numpy as np

from ottla_client import BatchDeliveryError
from ottla_client.errors import ClientError, RecordTooLargeError, TransactionAbortedError
from ottla_pipeline.source import kafka

from .errors import WriteError
from .large import LargeRecords
from .lookback import LookBack, TopicState
from .packing import PackedRows
from .replay import WrittenRecords, digests_of
from .task import WriteTally, producer

if TYPE_CHECKING:
    import pyarrow as pa

    from ottla_client.sync import BatchDelivery, Producer

    from .identity import Identity
    from .marks import Marks
    from .options import WriteOptions
    from .rows import Layout, Rows

log = logging.getLogger("ottla_pipeline")


class RowCollector:
    """Collects the rows of one task, and sets aside those that are too large for the producer."""

    def __init__(self, options: WriteOptions, layout: Layout) -> None:
        self._layout = layout
        self._large = LargeRecords(options)
        self.tally = WriteTally()
        self.rows: list[PackedRows] = []

    def collect(self, batches: Iterable[pa.RecordBatch]) -> None:
        """Take the rows of all batches. Raises WriteError, RecordTooLarge."""
        for batch in batches:
            if batch.num_rows:
                for rows in self._layout.split(batch):
                    self._put(rows)

    def _put(self, rows: Rows) -> None:
        large = self._large.among(rows, None)
        if large.any():
            those = rows.take(large)
            self.tally.too_large[rows.topic] += len(those)
            for letters in self._large.set_aside(those):
                self._put(letters)
            rows = rows.take(~large)
        if len(rows):
            self.tally.topics.add(rows.topic)
            self.rows.append(PackedRows.of(rows))


class _Refused(Exception):
    """The broker refused records for their size, so the transaction has failed; they are set aside in the next one."""


class BatchTransaction:
    """Writes all rows of a batch in one transaction. One thread's."""

    def __init__(self, options: WriteOptions, identity: Identity) -> None:
        self._options = options
        self._identity = identity
        self._marking = options.skip_replayed != "never" and identity.keeps_marks
        self._large = LargeRecords(options)
        self._look_back = LookBack(options, identity, whole_batch=True, set_marks=False)
        self._producer: Producer
        self._marks: Marks
        self._topics: dict[str, TopicState] = {}
        """As they were before the batch."""
        self._refused: dict[bytes, str] = {}
        """Contents of records that a broker has refused for their size, and its errors."""
        self._pending: deque[tuple[BatchDelivery, Rows]] = deque()
        self._already: dict[str, WrittenRecords] = {}
        self._tally = WriteTally()

    def write(self, parts: Iterable[PackedRows]) -> WriteTally:
        """Write these rows, which are iterated again if records have to be set aside.

        Raises WriteError, RecordTooLarge, ClientError; then nothing was written, unless the error says that it is
        unknown whether the transaction was committed.
        """
        arguments = self._options.producer()
        arguments["transactional_id"] = self._options.transactional_id or self._identity.transactional_id(
            self._options.topic
        )
        with ExitStack() as stack:
            # From here on, no earlier try of the batch can write anything any more.
            self._producer = stack.enter_context(producer(self._options.bootstrap_servers, arguments))
            if self._marking:
                self._marks = stack.enter_context(self._look_back.marks())
            while True:
                try:
                    self._transact(parts)
                except _Refused:
                    continue  # without the records that were refused, which are set aside
                return self._tally

    def _transact(self, parts: Iterable[PackedRows]) -> None:
        self._tally = WriteTally()
        self._already = {}
        self._pending.clear()
        self._producer.begin_transaction()
        try:
            self._send(parts)
            topics = {name for name in self._tally.topics if not self._topics[name].passed}
            if self._marking and topics:
                marks = self._marks.when_done(topics, self._identity.batch, self._identity.run)
                offsets = {partition: mark.committed for partition, mark in marks.items()}
                self._producer.send_offsets_to_transaction(offsets, self._identity.group)
            self._producer.commit_transaction()
        except BaseException:
            self._abort()
            raise
        for name, already in self._already.items():
            if len(already):
                self._tally.unmatched[name] = len(already)

    def _abort(self) -> None:
        """Abort after an error. If that fails, the next producer with this id does it, or the coordinator."""
        try:
            self._producer.abort_transaction(kafka.call_timeout(self._options.client))
        except ClientError as error:
            log.info("the transaction is not aborted yet: %s", error)

    def _send(self, parts: Iterable[PackedRows]) -> None:
        """Send all rows and wait until they are acknowledged. Raises _Refused, WriteError, ClientError."""
        try:
            for part in parts:
                for rows in self._to_send(part.unpack()):
                    self._put(rows)
                self._check_deliveries(wait=False)
            self._producer.flush()
        except TransactionAbortedError as error:
            # A delivery has the reason.
            self._check_deliveries(wait=True)
            raise WriteError(str(error)) from error
        self._check_deliveries(wait=True)

    def _to_send(self, rows: Rows) -> Iterator[Rows]:
        """``rows``, or their dead letters, without those that an earlier try has written."""
        if self._refused:
            digests = digests_of(rows)
            large = np.array([each in self._refused for each in digests])
            if large.any():
                errors = [self._refused[each] for each in digests if each in self._refused]
                letters = self._large.set_aside(rows.take(large), errors)
                self._tally.too_large[rows.topic] += len(errors)
                rows = rows.take(~large)
                for each in letters:
                    yield from self._to_send(each)
        if not len(rows):
            return
        topic = self._topic(rows.topic)
        self._tally.topics.add(rows.topic)
        if topic.finished:
            self._tally.already[rows.topic] += len(rows)
            return
        already = self._already.setdefault(rows.topic, topic.already.copy())
        if len(already):
            there = already.take(digests_of(rows))
            self._tally.already[rows.topic] += int(there.sum())
            rows = rows.take(~there)
        if len(rows):
            yield rows

    def _topic(self, name: str) -> TopicState:
        found = self._topics.get(name)
        if found is None:
            found = TopicState(WrittenRecords())
            if self._marking:
                found = self._look_back.topic(self._marks, name, self._producer.partitions_for(name))
            self._topics[name] = found
        return found

    def _put(self, rows: Rows) -> None:
        delivery = self._producer.send_batch(
            rows.topic,
            rows.value_list(),
            keys=rows.key_list(),
            partition=rows.partition,
            headers=rows.header_lists(),
        )
        self._pending.append((delivery, rows))

    def _check_deliveries(self, *, wait: bool) -> None:
        """Check finished deliveries, with ``wait`` all of them. Raises _Refused, WriteError."""
        failed: list[tuple[BatchDeliveryError, Rows]] = []
        # Once one has failed, none is sent any more, so that the others have an outcome soon.
        while self._pending and (wait or failed or self._pending[0][0].done()):
            delivery, rows = self._pending.popleft()
            try:
                delivery.result()
            except BatchDeliveryError as error:
                failed.append((error, rows))
            else:
                self._tally.written[rows.topic] += len(rows)
        if not failed:
            return
        known = len(self._refused)
        for failure, rows in failed:
            self._learn(failure, rows)
        if len(self._refused) > known:
            raise _Refused
        errors = [why for failure, _ in failed for _, why in failure.failed]
        # The first other error is the reason of the abort.
        why = next((each for each in errors if not isinstance(each, TransactionAbortedError)), errors[0])
        raise WriteError(str(why)) from why

    def _learn(self, error: BatchDeliveryError, rows: Rows) -> None:
        """Note which of ``rows`` the broker refused for their size."""
        reasons = {
            place: str(why)
            for places, why in error.failed
            if isinstance(why, RecordTooLargeError)
            for place in places
        }
        if reasons:
            mask = np.zeros(len(rows), np.bool_)
            mask[list(reasons)] = True
            errors = [reasons[place] for place in sorted(reasons)]
            self._refused.update(zip(digests_of(rows.take(mask)), errors, strict=True))
