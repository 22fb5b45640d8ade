"""The producer that programs use."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from time import time_ns
from typing import TYPE_CHECKING, Any, Unpack

from ..cluster import Cluster
from ..deadline import Deadline
from ..errors import ClosedError, RequestTimeoutError
from ..settings import DEFAULT_BOOTSTRAP, accepts
from .accumulator import Accumulator
from .batch import RECORD_OVERHEAD
from .bulk import Bulk, Columns
from .delivery import BatchDelivery, Delivery
from .filling import Filling
from .producer_id import ProducerIdHolder
from .queue import RetryPolicy
from .records import (
    HeadersLike,
    check_size,
    check_timestamp,
    record_size,
    to_bytes,
    to_headers,
)
from .sender import Sender
from .settings import ProducerOptions, ProducerSettings

if TYPE_CHECKING:
    from types import TracebackType

    import pyarrow

    from ..types import RecordMetadata

logger = logging.getLogger("ottla_client.producer")


class Producer:
    """Sends records to topics, many at a time, each once and in the order of sending by partition.

    ::

        async with Producer("127.0.0.1:9092") as producer:
            delivery = await producer.send("flights", b"...", key=b"EWR")   # in the buffer
            metadata = await delivery                                       # acknowledged

    ``send`` returns as soon as the record is in the buffer. From there it goes out with others of its partition
    when a batch is full or has waited for ``linger_ms``. What fails for a passing reason is sent again, until
    ``delivery_timeout_ms`` is over, without being doubled or overtaken (idempotence). Await the delivery to learn
    that a record has arrived; a failure that nobody looks at is logged as an error.

    A send that is cancelled, or raises, has buffered nothing. A producer belongs to the event loop that started it.
    """

    @accepts(ProducerSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Options as in the Java client, where there are such; times in milliseconds, sizes in bytes.

        :param bootstrap_servers: ``host:port`` of brokers to ask first, with commas between, or a list of them.
        :param acks: "all": acknowledged when all in-sync replicas have it; 1: when the leader has; 0: nobody is asked.
        :param enable_idempotence: None is True as long as ``acks`` and ``max_in_flight_requests_per_connection`` (at
            most 5) allow it. True insists: a ConfigurationError where they don't. Without idempotence a retry may
            double records and let others overtake them.
        :param linger_ms: how long a batch waits for more records before it is sent.
        :param batch_size: bytes before compression that make a batch full, 128 KiB. Java has 16 KiB; what is done once
            a batch costs more in Python. Memory is borrowed as a batch grows, so many partitions don't use it up.
        :param max_request_size: of a record, and of a request. The topic's ``max.message.bytes`` limits batches too.
        :param compression_type: "gzip", "snappy", "lz4", "zstd", or None; ``compression_level`` is the codec's own.
        :param buffer_memory: for records that are not acknowledged yet; when it is used up, ``send`` waits.
        :param max_block_ms: the longest such wait, also for a topic's metadata, and in ``start``.
        :param delivery_timeout_ms: from ``send`` until a record is acknowledged or given up, tries included; at least
            ``linger_ms`` + ``request_timeout_ms``.
        :param max_in_flight_requests_per_connection: requests on the way to one broker.
        :param partitioner: called as ``partitioner(topic, key, partitions)``. By default keys go where the Java client
            sends them, and records without a key fill a batch of one partition before the next.
        :param key_serializer: takes what ``send`` is given as key and returns bytes; ``value_serializer`` likewise.
            None is not passed to them.
        :param allow_auto_create_topics: have the broker make topics that don't exist, if it is set to.

        All clients have the options of `ConnectionSettings` as well. Raises ConfigurationError for an invalid option.
        """
        self._settings = settings = ProducerSettings.of(options, "Producer")
        self._cluster = Cluster(bootstrap_servers, settings)
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        self._identities = ProducerIdHolder() if settings.idempotent else None
        self._accumulator = Accumulator(
            batch_size=settings.batch_bytes,
            buffer_memory=settings.buffer_memory,
            linger=settings.linger,
            retries=RetryPolicy(
                settings.delivery_timeout,
                self._cluster.backoff.after,
                one_at_a_time=settings.max_in_flight_requests_per_connection == 1,
            ),
            identities=self._identities,
            random=Random(),
        )
        self._plain = self._accumulator.plain
        self._large = min(settings.batch_bytes, settings.buffer_memory // 2)
        """A record of more bytes may be too large; what fits into a batch is not."""
        self._filling = Filling(
            self._cluster,
            self._accumulator,
            settings,
            settings.partitioner,
            # Only records that need no look at all may take the short way.
            short_way=settings.value_serializer is None and settings.partitioner is None,
            check_open=self._check_open,
        )
        self._sender: Sender | None = None
        self._closing = False
        self._closed: asyncio.Event | None = None
        self._fatal: Exception | None = None

    def __repr__(self) -> str:
        return f"<Producer to {self._cluster}>"

    # ---- life

    async def start(self) -> None:
        """Reach the cluster. Raises BootstrapError when nobody answers within max_block_ms."""
        if self._sender is not None or self._closing:
            raise ClosedError("a producer is started once; make a new one")
        self._closed = asyncio.Event()
        await self._cluster.start(Deadline(self._settings.max_block))
        if self._closing:
            raise ClosedError("the producer was closed while it started")
        self._sender = Sender(
            self._cluster, self._accumulator, self._settings, self._identities, self._broken
        )
        self._sender.start()

    async def close(self, timeout: float | None = 30) -> None:
        """Send what is in the buffer, for ``timeout`` seconds at most (None: as long as it takes), and disconnect.

        What could not be sent by then fails its deliveries, and RequestTimeoutError says how many records that were.
        When ``close`` is cancelled the same happens at once. A second call waits for the first.
        """
        if self._closing:
            if self._closed is not None:
                await self._closed.wait()
            return
        self._closing = True
        self._plain.clear()
        left = 0
        try:
            self._accumulator.memory.refuse(
                ClosedError("the producer was closed while a send waited for room")
            )
            if self._sender is not None:
                left = await self._finish(Deadline(timeout))
        finally:
            left += self._abandon(ClosedError("the producer was closed before the records were acknowledged"))
            try:
                if self._sender is not None:
                    await self._sender.stop()
            finally:
                try:
                    await self._cluster.close()
                finally:
                    if self._closed is not None:
                        self._closed.set()
        if left and self._fatal is None:
            raise RequestTimeoutError(
                f"the producer was closed with {left} records that no broker had acknowledged within {timeout:g} s; "
                "their deliveries have failed"
            )

    async def _finish(self, deadline: Deadline) -> int:
        """Wait for what is in the buffer, until the deadline. Returns how many records were given up then."""
        try:
            await self._flush(deadline)
        except TimeoutError:
            return self._abandon(ClosedError("the producer was closed before the records were acknowledged"))
        return 0

    def _abandon(self, error: Exception) -> int:
        return sum(queue.abandon(error) for queue in self._accumulator.all_queues())

    def _broken(self, error: Exception) -> None:
        """Nothing this producer sends will be accepted any more."""
        if self._fatal is None:
            self._fatal = error
            self._plain.clear()
            self._accumulator.memory.refuse(error)
            self._abandon(error)

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
            logger.error("%s", lost)  # what ended the block goes first

    # ---- sending

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
        """Put a record into the buffer; the Delivery that is returned tells what becomes of it.

        Waits, for ``max_block_ms`` at most, while the topic's metadata isn't known or the buffer is full, and gives
        the event loop a turn once a batch. A ``value`` of None is a tombstone. ``timestamp_ms`` is now by default.
        ``headers`` are pairs of a str and bytes, or a mapping.

        Raises, with nothing buffered: SerializationError, RecordTooLargeError, BufferFullError, UnknownTopicError,
        RequestTimeoutError (no metadata), ClosedError.
        """
        # The short way, a microsecond long: bytes that fit into the batch that is open for records without a key.
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
        self._check_open()
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
            buffer = await self._filling.topic(topic, partition)
        if partition is None:
            partition = self._filling.partition_of(buffer, key)
        queue = buffer.queues.get(partition)  # type: ignore[arg-type]
        batch = None if queue is None else queue.tail
        if batch is None or batch.left < size:
            batch = await self._filling.room(buffer, partition, size)
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
        """``send``, and wait until the record is acknowledged. One after the other, each waits for ``linger_ms``.

        Raises as ``send``; DeliveryTimeoutError and BrokerError for a record that was not delivered.
        """
        return await (
            await self.send(
                topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
            )
        )

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
        """Put many records of a topic into the buffer, at a fraction of what as many calls of ``send`` cost.

        ``keys``, ``timestamps_ms`` and ``headers`` are as long as ``values``; one timestamp may stand for all. Without
        keys, or with ``partition``, the records keep their order and go out in whole batches; with keys those of
        each partition keep theirs.

        The BatchDelivery, when awaited, gives the ranges of offsets that the records have been given. Everything is
        checked before the first record is buffered, errors as in ``send``. When the buffer is full for
        ``max_block_ms`` with some of the records in it, the BatchDelivery has the failure of the others. When it is
        cancelled while it waits for room, the records that are in the buffer already will be sent.
        """
        self._check_open()
        columns = Columns(values, keys, timestamps_ms, headers)
        bulk = Bulk.checked(columns, self._settings, self._key_serializer, self._value_serializer)
        delivery = BatchDelivery(topic)
        if not bulk.values:
            return delivery
        buffer = self._accumulator.topics.get(topic)
        if buffer is None or (partition is not None and partition not in buffer.queues):
            buffer = await self._filling.topic(topic, partition)
        await self._filling.add(buffer, bulk, partition, delivery)
        return delivery

    async def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> BatchDelivery:
        """``send_batch`` of a pyarrow Table or RecordBatch.

        Columns: ``value``, and optionally ``key`` (both binary or string), ``partition`` (an integer, null for the
        partitioner), ``timestamp`` (a timestamp, or milliseconds) and ``headers`` (a list of structs of key and value,
        or a map). Raises ConfigurationError for columns that don't fit, and for others; otherwise as ``send_batch``.
        """
        from .arrow import columns_of

        self._check_open()
        bulks = [
            (partition, Bulk.checked(columns, self._settings, self._key_serializer, self._value_serializer))
            for partition, columns in columns_of(table)
        ]
        delivery = BatchDelivery(topic)
        for partition, bulk in bulks:
            buffer = await self._filling.topic(topic, partition)
            await self._filling.add(buffer, bulk, partition, delivery)
        return delivery

    async def flush(self, timeout: float | None = None) -> None:
        """Send everything now, and wait until all that is in the buffer at this moment is acknowledged or has failed.

        Whether it failed is for the deliveries to say. Raises RequestTimeoutError after ``timeout`` seconds.
        """
        self._check_open()
        try:
            await self._flush(Deadline(timeout))
        except TimeoutError:
            raise RequestTimeoutError(
                f"{len(self._accumulator.unfinished())} batches were not acknowledged within {timeout:g} s; "
                "they are still being sent"
            ) from None

    async def partitions_for(self, topic: str) -> list[int]:
        """The topic's partitions. Waits for its metadata; errors as in ``send``."""
        self._check_open()
        return list((await self._filling.topic(topic, None)).partitions)

    # ---- how

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
