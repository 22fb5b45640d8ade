"""The producer without asyncio."""

from __future__ import annotations

import logging
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, Unpack

from ..deadline import Deadline
from ..errors import ClosedError, RequestTimeoutError
from ..meters import Metrics
from ..producer import Producer as AsyncProducer
from ..producer.batch import RECORD_OVERHEAD
from ..producer.records import HeadersLike, check_size, check_timestamp, record_size, to_bytes, to_headers
from ..producer.settings import ProducerOptions, ProducerSettings
from ..producer.transaction import GroupConsumer, OffsetsLike
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerGroupMetadata
from .send_queue import Delivery, SendQueue
from .sync_client import EXIT_SECONDS, SyncClient, blocking

if TYPE_CHECKING:
    import pyarrow

    from ottla_protocol.records.record import Headers

    from ..producer import AppendedRange
    from ..producer import BatchDelivery as AsyncBatchDelivery
    from ..types import RecordMetadata

T = TypeVar("T")

_log = logging.getLogger("ottla_client")


@dataclass(eq=False, slots=True)
class BatchDelivery:
    """The outcome of one ``send_batch``; used like a Delivery."""

    _inner: AsyncBatchDelivery
    _call: Callable[[Any], Any]

    def __len__(self) -> int:
        """The number of records."""
        return len(self._inner)

    def __repr__(self) -> str:
        return repr(self._inner)

    def done(self) -> bool:
        """Whether every record was delivered or has failed."""
        return self._inner.done()

    def result(self, timeout: float | None = None) -> list[AppendedRange]:
        """Wait until all records are acknowledged, and return their ranges of offsets.

        Raises BatchDeliveryError if some were not delivered, RequestTimeoutError after ``timeout`` seconds.
        """
        if not self._inner.done():
            self._call(self._wait(timeout))
        return self._inner.result()

    async def _wait(self, timeout: float | None) -> None:
        try:
            async with Deadline(timeout).timeout() as limit:
                await self._inner
        except TimeoutError:
            if limit.expired():
                raise RequestTimeoutError(
                    f"the records were not acknowledged within {timeout:g} s; they are still being sent"
                ) from None
            raise


class Transaction:
    """``ottla_client.Transaction`` for code without asyncio."""

    def __init__(self, producer: Producer) -> None:
        self._producer = producer
        self._inner = producer._client.transaction()
        self._inner._block = "with"

    def __enter__(self) -> Self:
        self._producer.begin_transaction()
        self._inner._open = True
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._producer._in_turn(lambda: self._inner.__aexit__(kind, error, traceback))

    def send_offsets(
        self, group: GroupConsumer | ConsumerGroupMetadata | str, offsets: OffsetsLike | None = None
    ) -> None:
        """Commit a group's offsets with the transaction; see the async method. Takes a sync Consumer."""
        self._producer.send_offsets_to_transaction(offsets, group)

    def commit(self, timeout: float | None = None) -> None:
        """Commit before the end of the block; see ``Producer.commit_transaction``."""
        self._producer._in_turn(lambda: self._inner.commit(timeout))

    def abort(self, timeout: float | None = None) -> None:
        """Abort without an exception; see ``Producer.abort_transaction``."""
        self._producer._in_turn(lambda: self._inner.abort(timeout))


class Producer(SyncClient[AsyncProducer]):
    """As ``ottla_client.Producer``, for code without asyncio::

        with Producer("127.0.0.1:9092") as producer:
            delivery = producer.send("flights", b"...", key=b"EWR")   # being sent
            metadata = delivery.result()                              # acknowledged

    Several threads may use it at once; the records of each thread stay in order. Serializers run in the thread that
    sends, the partitioner and the callbacks of deliveries in the background thread.
    """

    @accepts(ProducerSettings)
    def __init__(
        self,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ProducerOptions],
    ) -> None:
        """Takes the options of the async class. Buffers up to 2 MiB of records on top of ``buffer_memory``."""
        settings = ProducerSettings.of(options, "Producer")
        # Serializers run in the thread that sends.
        options["key_serializer"] = options["value_serializer"] = None
        client = AsyncProducer(bootstrap_servers, **options)
        client._reports_unclosed = False
        super().__init__(client)
        self._settings = settings
        self._key_serializer = settings.key_serializer
        self._value_serializer = settings.value_serializer
        self._queue = SendQueue(client, self._settings.max_block)
        self._topics: set[str] = set()
        self._plain = settings.value_serializer is None
        transactions = client._transactions
        self._transactions = None if transactions is None else transactions.manager
        if self._transactions is not None:
            self._transactions.block = "with"
        # Threads that begin a transaction in the loop's thread, and wait for it.
        self._begins = 0
        # Most records are far below the limit; check_size knows it exactly.
        self._surely_fits = self._settings.max_request_size - 1024

    def start(self) -> None:
        """Start the background thread and connect. Raises BootstrapError if that fails within max_block_ms."""
        super().start()
        assert self._runner is not None
        self._queue.open(self._runner)

    def close(self, timeout: float | None = 30) -> None:
        """Send the buffered records, within ``timeout`` seconds (None: without a limit), and disconnect.

        The deliveries of records that could not be sent fail, and RequestTimeoutError has their number. A second call
        does nothing.
        """
        self._queue.refuse()
        self._end(lambda: self._finish(Deadline(timeout)))

    async def _finish(self, deadline: Deadline) -> None:
        closed = ClosedError("the producer was closed before the record was buffered")
        left = 0
        try:
            async with deadline.timeout():
                await self._queue.emptied()
        except TimeoutError:
            left = self._queue.give_up(closed)
        finally:
            self._queue.give_up(closed)
            await self._client.close(None if deadline.at == float("inf") else deadline.left())
        if left:
            raise RequestTimeoutError(
                f"the producer was closed with {left} records that were not buffered yet"
            )

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        try:
            self.close()
        except RequestTimeoutError as lost:
            if error is None:
                raise
            _log.error("%s", lost)  # the error that ended the block is raised

    def send(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> Delivery:
        """Send a record. The Delivery reports where the record was stored, or why it wasn't.

        Waits up to ``max_block_ms`` for the topic's metadata, and while records are sent faster than the brokers accept
        them. Otherwise it returns at once; the Delivery also reports errors of buffering. Without ``timestamp_ms`` a
        record has the time of buffering.

        Raises with nothing sent: SerializationError, RecordTooLargeError, BufferFullError, UnknownTopicError,
        RequestTimeoutError (no metadata), ClosedError.
        """
        if self._transactions is not None and not self._queue.beginning and not self._transactions.is_open:
            self._client._check_send()
        if topic not in self._topics:
            self._call(self._client.partitions_for(topic))
            self._topics.add(topic)
        pairs: Headers = ()
        if self._plain and value.__class__ is bytes and key is None and not headers and timestamp_ms is None:
            size = len(value) + RECORD_OVERHEAD
        else:
            value = to_bytes("value", value, self._value_serializer)
            key = to_bytes("key", key, self._key_serializer)
            if headers:
                pairs = to_headers(headers)
            if timestamp_ms is not None:
                check_timestamp(timestamp_ms)
            size = record_size(value, key, pairs)
        if size > self._surely_fits:
            check_size(size, self._settings)
        delivery = Delivery(self._queue)
        self._queue.put((delivery, topic, value, key, partition, timestamp_ms, pairs), size)
        return delivery

    def send_and_wait(
        self,
        topic: str,
        value: Any = None,
        key: Any = None,
        *,
        partition: int | None = None,
        timestamp_ms: int | None = None,
        headers: HeadersLike = (),
    ) -> RecordMetadata:
        """Send a record and wait until it is acknowledged. In a loop, each call waits for ``linger_ms``."""
        delivery = self.send(
            topic, value, key, partition=partition, timestamp_ms=timestamp_ms, headers=headers
        )
        return delivery.result()

    def send_batch(
        self,
        topic: str,
        values: Sequence[Any],
        *,
        keys: Sequence[Any] | None = None,
        partition: int | None = None,
        timestamps_ms: Sequence[int] | int | None = None,
        headers: Sequence[HeadersLike] | None = None,
    ) -> BatchDelivery:
        """Buffer many records of a topic, much faster than with a ``send`` for each; see the async method.

        The records follow those of earlier calls of ``send``.
        """
        if self._value_serializer is not None:
            values = [to_bytes("value", value, self._value_serializer) for value in values]
        if self._key_serializer is not None and keys is not None:
            keys = [to_bytes("key", key, self._key_serializer) for key in keys]

        inner = self._in_turn(
            lambda: self._client.send_batch(
                topic, values, keys=keys, partition=partition, timestamps_ms=timestamps_ms, headers=headers
            )
        )
        return BatchDelivery(inner, self._call)

    def send_arrow(self, topic: str, table: pyarrow.Table | pyarrow.RecordBatch) -> BatchDelivery:
        """``send_batch`` of a pyarrow Table or RecordBatch; see the async method. No serializer runs."""
        return BatchDelivery(self._in_turn(lambda: self._client.send_arrow(topic, table)), self._call)

    def transaction(self) -> Transaction:
        """A transaction as a block; see the async method::

            with producer.transaction() as transaction:
                producer.send("out", b"...")
                transaction.send_offsets(consumer)

        It has the records of all threads that use the producer.
        """
        return Transaction(self)

    def begin_transaction(self) -> None:
        """Begin a transaction; ``transaction()`` does it. Raises TransactionStateError if one is open."""
        with self._lock:
            transactions = self._transactions
            queue = self._queue
            at_once = (
                self._usable
                and transactions is not None
                and transactions.is_ready
                and not (queue.beginning or self._begins)
            )
            if at_once:
                # It begins before anything that this thread does next, and before what others begin. Only the
                # producer's end can prevent that, and then every send and the commit raise the reason.
                queue.beginning = True
                self._post(queue.begin)
                return
            self._begins += 1
        try:
            self._call(self._client.begin_transaction())
        finally:
            with self._lock:
                self._begins -= 1

    def send_offsets_to_transaction(
        self, offsets: OffsetsLike | None, group: GroupConsumer | ConsumerGroupMetadata | str
    ) -> None:
        """Commit offsets of a group with the transaction; see ``Transaction.send_offsets``."""
        if not isinstance(group, str | ConsumerGroupMetadata):
            # The consumer answers in its own thread.
            group, positions = group.transaction_offsets()
            offsets = positions if offsets is None else offsets
        self._call(self._client.send_offsets_to_transaction(offsets, group))

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Send the buffered records and commit; see the async method."""
        self._in_turn(lambda: self._client.commit_transaction(timeout))

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop records that were not sent, and abort the transaction; see the async method."""
        self._in_turn(lambda: self._client.abort_transaction(timeout))

    def _in_turn(self, work: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Do something after all records that were sent are buffered, or have failed."""

        async def run() -> T:
            await self._queue.emptied()
            return await work()

        return self._call(run())

    def metrics(self) -> Metrics:
        """The producer's counts; see the async method."""
        return self._client.metrics()

    def flush(self, timeout: float | None = None) -> None:
        """Send all records now, and wait until each is acknowledged or has failed.

        Only the deliveries report failures. Raises RequestTimeoutError after ``timeout`` seconds.
        """

        async def flush() -> None:
            deadline = Deadline(timeout)
            try:
                async with deadline.timeout():
                    await self._queue.emptied()
            except TimeoutError:
                raise RequestTimeoutError(
                    f"the buffer had no room for all records within {timeout:g} s"
                ) from None
            await self._client.flush(None if timeout is None else deadline.left())

        self._call(flush())

    partitions_for = blocking(AsyncProducer.partitions_for)
