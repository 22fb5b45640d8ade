"""The producer that programs use."""

from __future__ import annotations

import asyncio
import atexit
import logging
import os
import warnings
import weakref
from collections.abc import Sequence
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, Any, Unpack

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError, RequestTimeoutError
from ..meters import Metrics
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerGroupMetadata, OffsetAndMetadata, TopicPartition
from .accumulator import Accumulator
from .appender import RecordAppender
from .batch import RECORD_OVERHEAD
from .buffer_pool import BufferPool
from .bulk import Bulk, Columns
from .delivery import BatchDelivery, Delivery
from .queue import RetryPolicy
from .records import HeadersLike, check_size, check_timestamp, record_size, to_bytes, to_headers
from .sender import Sender
from .sequences import ProducerIdHolder
from .settings import ProducerOptions, ProducerSettings
from .transaction import GroupConsumer, OffsetsLike, Transaction

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow

    from ..types import RecordMetadata
    from .transactions import Transactions

_log = logging.getLogger("ottla_client.producer")


class Producer:
    """Sends records to topics in batches. Each record is stored once, in the order of sending within its partition.

    ::

        async with Producer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"...", key=b"EWR")   # in the buffer
            metadata = await delivery                                       # acknowledged

    ``send`` returns as soon as the record is in the buffer. A batch of its partition is sent when it is full or has
    waited for ``linger_ms``. After a temporary failure it is sent again until ``delivery_timeout_ms``, without
    duplicates or reordering (idempotence). Await the delivery to learn that the record was stored. A failure that you
    don't ask for is logged as an error.

    A send that is cancelled or raises has buffered nothing. A producer belongs to the event loop that started it.

    Close it: records that are in the buffer when it is collected, or when the program ends, are never sent. That logs
    an error with their number, and a ResourceWarning is given.
    """

    @accepts(ProducerSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Options named as in the Java client; times in milliseconds, sizes in bytes.

        :param bootstrap_servers: brokers to contact first: ``host:port``, separated by commas or as a list.
        :param acks: "all" waits until all in-sync replicas have the record, 1 for the leader, 0 for no broker.
        :param enable_idempotence: None enables idempotence if ``acks`` and ``max_in_flight_requests_per_connection``
            (at most 5) allow it; True raises ConfigurationError if they don't. Without idempotence a retry may
            duplicate and reorder records.
        :param linger_ms: how long a batch waits for more records before it is sent.
        :param batch_size: bytes of a full batch before compression, 128 KiB. Java has 16 KiB; the cost per batch is
            higher in Python. A batch borrows memory as it grows, so many partitions don't use it up.
        :param max_request_size: the limit for a record and a request. The topic's ``max.message.bytes`` applies too.
        :param compression_type: "gzip", "snappy", "lz4", "zstd", or None; ``compression_level`` is the codec's level.
        :param buffer_memory: memory for records that are not acknowledged. When it is full, ``send`` waits.
        :param max_block_ms: the longest wait in ``send``, also for a topic's metadata, and in ``start``.
        :param delivery_timeout_ms: the time from ``send`` until a record is acknowledged or fails, retries included; at
            least ``linger_ms`` + ``request_timeout_ms``.
        :param max_in_flight_requests_per_connection: requests in flight to one broker.
        :param partitioner: called as ``partitioner(topic, key, partitions)``. By default keys go to the partition that
            the Java client chooses, and records without a key fill a batch of one partition before the next.
        :param key_serializer: makes bytes from a key; ``value_serializer`` likewise. None is not passed to them.
        :param allow_auto_create_topics: let the broker create missing topics, if its own settings allow it.
        :param transactional_id: makes the producer transactional: it sends records in a ``transaction()`` only. The
            name stays the same across restarts; a new producer with it ends what an older one left, and fences it.
        :param transaction_timeout_ms: how long a transaction may be open before its coordinator aborts it, up to the
            broker's transaction.max.timeout.ms. The producer can't continue then.

        All clients have the options of `ConnectionSettings` as well. Raises ConfigurationError for an invalid option.
        """
        self._settings = settings = ProducerSettings.of(options, "Producer")
        self._cluster = Cluster(bootstrap_servers, settings)
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        self._identities = ProducerIdHolder() if settings.idempotent else None
        self._transactions: Transactions | None = None
        identities = self._identities
        if settings.transactional_id is not None:
            from .transactions import Transactions

            self._transactions = Transactions(self._cluster, settings, stop=self._broken)
            identities = self._transactions.manager.ids
            self._identities = None  # the sender asks for none
        self._accumulator = _accumulator(settings, self._cluster, identities, self._transactions)
        self._plain = self._accumulator.plain
        self._large = min(settings.batch_bytes, settings.buffer_memory // 2)
        """A record with more bytes may be too large; one that fits into a batch isn't."""
        self._appender = RecordAppender(
            self._cluster,
            self._accumulator,
            settings,
            # The fast path checks nothing but the record's size.
            fast_path=settings.value_serializer is None and settings.partitioner is None,
            check_open=self._check_send,
            not_sent=self._not_sent,
        )
        self._sender: Sender | None = None
        self._closing = False
        self._closed: asyncio.Event | None = None
        self._fatal: Exception | None = None
        self._process = 0
        """The process that started it, and sends its records: no child of a fork does."""
        self._reports_unclosed = True
        """False for the producer of a sync one, which is closed at the program's end."""

    def __repr__(self) -> str:
        return f"<Producer to {self._cluster}>"

    async def start(self) -> None:
        """Connect to the cluster, and with a transactional id end what an older producer with it left.

        Raises BootstrapError if that fails within max_block_ms. With a transactional id also BrokerError,
        UnsupportedApiError for brokers without transactions, and RequestTimeoutError.
        """
        if self._sender is not None or self._closing:
            raise ClosedError("the producer was started before; make a new one")
        self._closed = asyncio.Event()
        deadline = Deadline(self._settings.max_block)
        await self._cluster.start(deadline)
        if self._closing:
            raise ClosedError("the producer was closed while it started")
        sender = Sender(
            self._cluster,
            self._accumulator,
            self._settings,
            self._identities,
            self._broken,
            self._transactions,
        )
        if self._transactions is not None:
            try:
                await self._transactions.start(
                    self._accumulator, sender.route_all, sender.add_partitions, deadline
                )
            except BaseException:
                await self._transactions.end()
                await sender.stop()
                await self._cluster.close()
                raise
        self._sender = sender
        self._process = os.getpid()
        _open.add(self)

    async def close(self, timeout: float | None = 30) -> None:
        """Send the buffered records, within ``timeout`` seconds (None: without a limit), and disconnect.

        The deliveries of records that could not be sent fail, and RequestTimeoutError has their number. The same
        happens when ``close`` is cancelled. A second call waits for the first. An open transaction is aborted.
        """
        if self._closing:
            if self._closed is not None:
                await self._closed.wait()
            return
        self._closing = True
        _open.discard(self)
        self._plain.clear()
        left = 0
        deadline = Deadline(timeout)
        try:
            self._accumulator.memory.refuse(
                ClosedError("the producer was closed while a send waited for room")
            )
            if self._sender is not None:
                if self._transactions is not None:
                    await self._transactions.close(deadline)
                left = await self._finish(deadline)
        finally:
            left += self._abandon(ClosedError("the producer was closed before the records were acknowledged"))
            await self._disconnect()
        if left and self._fatal is None:
            raise RequestTimeoutError(
                f"the producer was closed with {left} records that no broker acknowledged within {timeout:g} s; "
                "their deliveries have failed"
            )

    async def _disconnect(self) -> None:
        try:
            if self._transactions is not None:
                await self._transactions.end()
            if self._sender is not None:
                await self._sender.stop()
        finally:
            try:
                await self._cluster.close()
            finally:
                if self._closed is not None:
                    self._closed.set()

    async def _finish(self, deadline: Deadline) -> int:
        """Wait for the buffered records until the deadline. Returns how many failed then."""
        try:
            await self._flush(deadline)
        except TimeoutError:
            return self._abandon(ClosedError("the producer was closed before the records were acknowledged"))
        return 0

    def _abandon(self, error: Exception) -> int:
        return sum(queue.abandon(error) for queue in self._accumulator.all_queues())

    def _broken(self, error: Exception) -> None:
        """A fatal error: no broker accepts records of this producer from now on."""
        if self._fatal is None:
            self._fatal = error
            self._plain.clear()
            self._accumulator.memory.refuse(error)
            self._abandon(error)
            if self._transactions is not None:
                self._transactions.manager.stop(error)

    def __del__(self) -> None:
        self._report_unclosed()

    def _report_unclosed(self) -> None:
        """Say that nothing will send the records in the buffer; only once."""
        if not getattr(self, "_reports_unclosed", False) or self._sender is None or self._closing:
            return
        if self._process != os.getpid():
            return
        self._reports_unclosed = False
        left = self._accumulator.unfinished()
        unsent = sum(batch.count or len(batch.values) for batch in left if not batch.attempts)
        unanswered = sum(batch.count for batch in left if batch.attempts)
        if left:
            lost = [f"{unsent:,} records were never sent"] if unsent else []
            lost += [f"{unanswered:,} records were sent without an acknowledgement"] if unanswered else []
            _log.error('%r was not closed: %s; use "async with", or await close()', self, " and ".join(lost))
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=3)

    async def __aenter__(self) -> Producer:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            await self.close()
        except RequestTimeoutError as lost:
            if error is None:
                raise
            _log.error("%s", lost)  # the error that ended the block is raised

    async def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Buffer a record. The Delivery reports where the record was stored, or why it wasn't.

        Waits up to ``max_block_ms`` for the topic's metadata and for room in the buffer, and gives the event loop a
        turn once per batch. A ``value`` of None is a tombstone. ``timestamp_ms`` is now by default. ``headers`` are
        pairs of a str and bytes, or a mapping.

        Raises with nothing buffered: SerializationError, RecordTooLargeError, BufferFullError, UnknownTopicError,
        RequestTimeoutError (no metadata), ClosedError.
        """
        # The fast path, one microsecond: plain bytes that fit into the open batch for records without a key.
        if (
            key is None
            and partition is None
            and timestamp_ms is None
            and value.__class__ is bytes
            and not headers
        ):
            batch = self._plain.get(topic)
            if batch is not None:
                left = batch.left - len(value) - RECORD_OVERHEAD
                if left >= 0:
                    batch.left = left
                    values = batch.values
                    index = len(values)
                    values.append(value)
                    now = time_ns() // 1_000_000
                    if now != batch.stamp:
                        batch.stamp = now
                        batch.stamps.append((index, now))
                    return Delivery((batch, index))
        self._check_send()
        if value.__class__ is not bytes or self._value_serializer is not None:
            value = to_bytes("value", value, self._value_serializer)
        if key is not None and (key.__class__ is not bytes or self._key_serializer is not None):
            key = to_bytes("key", key, self._key_serializer)
        pairs = to_headers(headers) if headers else ()
        if timestamp_ms is not None:
            check_timestamp(timestamp_ms)
        size = record_size(value, key, pairs)
        if size > self._large:
            check_size(size, self._settings)
        buffer = self._accumulator.topics.get(topic)
        if buffer is None or (partition is not None and partition not in buffer.queues):
            buffer = await self._appender.topic(topic, partition)
        if partition is None:
            partition = self._appender.partition_of(buffer, key)
        queue = buffer.queues.get(partition)  # type: ignore[arg-type]
        batch = None if queue is None else queue.tail
        if batch is None or batch.left < size:
            batch = await self._appender.room(buffer, partition, size)
        batch.left -= size
        if timestamp_ms is None:
            timestamp_ms = time_ns() // 1_000_000
        return Delivery((batch, batch.append(value, key, timestamp_ms, pairs)))

    async def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. In a loop, each call waits for ``linger_ms``.

        Raises the errors of ``send``; DeliveryTimeoutError and BrokerError for a record that was not delivered.
        """
        delivery = await self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return await delivery

    async def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[HeadersLike] | None = None,
    ) -> BatchDelivery:
        """Buffer many records of a topic, much faster than with a ``send`` for each.

        ``keys``, ``timestamps_ms`` and ``headers`` have the length of ``values``; a single timestamp applies to all.
        Without keys, or with ``partition``, the records keep their order and fill whole batches. With keys the records
        of each partition keep their order.

        Await the BatchDelivery for the records' ranges of offsets. All records are checked before the first one is
        buffered; raises the errors of ``send``. If the buffer stays full for ``max_block_ms`` after some records are in
        it, the BatchDelivery has the error of the others. After a cancellation, records that are in the buffer are
        still sent.
        """
        self._check_send()
        bulk = Bulk.checked(Columns(values, keys, timestamps_ms, headers), self._settings)
        delivery = BatchDelivery(topic)
        if not bulk.values:
            return delivery
        buffer = self._accumulator.topics.get(topic)
        if buffer is None or (partition is not None and partition not in buffer.queues):
            buffer = await self._appender.topic(topic, partition)
        await self._appender.add(buffer, bulk, partition, delivery)
        return delivery

    async def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> BatchDelivery:
        """``send_batch`` of a pyarrow Table or RecordBatch.

        Columns: ``value``, and optionally ``key`` (both binary or string), ``partition`` (an integer, null for the
        partitioner), ``timestamp`` (a timestamp, or milliseconds) and ``headers`` (a list of structs of key and value,
        or a map). Raises ConfigurationError for unknown columns and wrong types, and the errors of ``send_batch``.
        """
        from .arrow import columns_of

        self._check_send()
        bulks = [(each, Bulk.checked(columns, self._settings)) for each, columns in columns_of(table)]
        delivery = BatchDelivery(topic)
        for partition, bulk in bulks:
            buffer = await self._appender.topic(topic, partition)
            await self._appender.add(buffer, bulk, partition, delivery)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Send all buffered records now, and wait until each is acknowledged or has failed.

        Only the deliveries report failures. Raises RequestTimeoutError after ``timeout`` seconds.
        """
        self._check_open()
        try:
            await self._flush(Deadline(timeout))
        except TimeoutError:
            raise RequestTimeoutError(
                f"{len(self._accumulator.unfinished())} batches were not acknowledged within {timeout:g} s; "
                "they are still being sent"
            ) from None

    def metrics(self) -> Metrics:
        """The producer's counts, under the names of Java's: values by name, by group.

        ``metrics()["producer-metrics"]["record-send-total"]``; topics have groups of their own,
        ``producer-topic-metrics.orders``. Rates and averages are over about half a minute, times are in milliseconds. A
        call costs microseconds; it may come from any thread, before the start and after the close.
        """
        from .metrics import producer_metrics

        return producer_metrics(self._cluster, self._accumulator, self._sender)

    async def partitions_for(self, topic: str) -> list[int]:
        """The numbers of a topic's partitions. Waits for its metadata; raises the errors of ``send``."""
        self._check_open()
        return list((await self._appender.topic(topic, None)).partitions)

    def transaction(self) -> Transaction:
        """A transaction as a block; the producer needs a ``transactional_id``::

            async with producer.transaction() as transaction:
                await producer.send("out", b"...")
                await transaction.send_offsets(consumer)

        The end of the block commits, an exception in it aborts and is raised. If the commit fails, the transaction is
        aborted, and TransactionAbortedError has the reason; the producer can begin another one. ProducerFencedError
        ends the producer. After RequestTimeoutError the outcome is unknown: ``transaction.commit()`` waits for it.
        """
        self._transactional()
        return Transaction(self)

    async def begin_transaction(self) -> None:
        """Begin a transaction; ``transaction()`` does it. Raises TransactionStateError if one is open."""
        transactions = self._transactional()
        self._check_open()
        transactions.begin()

    async def send_offsets_to_transaction(
        self,
        offsets: OffsetsLike | None,
        group: GroupConsumer | ConsumerGroupMetadata | str,
    ) -> None:
        """Commit offsets of a group with the transaction, within max_block_ms; see ``Transaction.send_offsets``."""
        transactions = self._transactional()
        self._check_open()
        exact: dict[TopicPartition, OffsetAndMetadata]
        if isinstance(group, str):
            group = ConsumerGroupMetadata(group)
        if isinstance(group, ConsumerGroupMetadata):
            if offsets is None:
                raise ConfigurationError("give the offsets, or pass the consumer that knows them")
            metadata, exact = group, {}
        else:
            metadata, exact = group.transaction_offsets()
            if offsets is not None:
                exact = {}
        for partition, each in (offsets or {}).items():
            exact[TopicPartition(*partition)] = OffsetAndMetadata(each) if isinstance(each, int) else each
        await transactions.add_offsets(metadata, exact, Deadline(self._settings.max_block))

    async def commit_transaction(self, timeout: float | None = None) -> None:
        """Send the buffered records and commit; at the end of ``transaction()`` it is done for you.

        Waits ``timeout`` seconds, by default delivery_timeout_ms + max_block_ms. Raises TransactionAbortedError if a
        record or an offset failed: call ``abort_transaction`` then. After RequestTimeoutError the outcome is unknown;
        call it again. Raises ProducerFencedError, TransactionStateError.
        """
        transactions = self._transactional()
        self._check_open()
        await transactions.commit(self._end_deadline(timeout))

    async def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop records that were not sent, and abort the transaction.

        Waits as ``commit_transaction`` does. After RequestTimeoutError the abort goes on, and a second call waits for
        it. Raises ProducerFencedError, TransactionStateError.
        """
        transactions = self._transactional()
        self._check_open()
        await transactions.abort(self._end_deadline(timeout))

    def _not_sent(self, error: Exception) -> None:
        """A record that the application takes for sent can't be buffered: its transaction must not be committed."""
        if self._transactions is not None:
            self._transactions.manager.not_sent(error)

    def _end_deadline(self, timeout: float | None) -> Deadline:
        if timeout is None:
            timeout = self._settings.delivery_timeout + self._settings.max_block
        return Deadline(timeout)

    def _transactional(self) -> Transactions:
        if self._transactions is None:
            raise ConfigurationError("a producer without a transactional_id has no transactions; give it one")
        return self._transactions

    def _check_send(self) -> None:
        if self._fatal is not None or self._closing or self._sender is None:
            self._check_open()
        transactions = self._transactions
        if transactions is not None and not transactions.manager.is_open:
            transactions.manager.check_sending()

    def _adds_partitions(self) -> bool:
        """Whether the event loop needs a turn to add partitions to an open transaction."""
        if self._transactions is None or self._sender is None:
            return False
        return self._sender.add_partitions() or self._transactions.gathers

    def _check_open(self) -> None:
        if self._fatal is not None:
            raise self._fatal
        if self._closing:
            raise ClosedError("the producer is closed")
        if self._sender is None:
            raise ClosedError('the producer is not started: use "async with", or await start()')

    async def _flush(self, deadline: Deadline) -> None:
        """Raises TimeoutError at the deadline."""
        self._accumulator.hurry()
        async with deadline.timeout():
            for batch in self._accumulator.unfinished():
                await batch.wait()


def _accumulator(
    settings: ProducerSettings,
    cluster: Cluster,
    identities: ProducerIdHolder | None,
    transactions: Transactions | None,
) -> Accumulator:
    return Accumulator(
        batch_size=settings.batch_bytes,
        memory=BufferPool(settings.buffer_memory),
        linger=settings.linger,
        retries=RetryPolicy(
            settings.delivery_timeout,
            cluster.backoff.after,
            one_at_a_time=settings.max_in_flight_requests_per_connection == 1,
        ),
        identities=identities,
        random=Random(),
        failed=None if transactions is None else transactions.batch_failed,
    )


_open: weakref.WeakSet[Producer] = weakref.WeakSet()


@atexit.register
def _report_all() -> None:
    """Report the producers that the program left open, while logging still works."""
    for producer in tuple(_open):
        producer._report_unclosed()
