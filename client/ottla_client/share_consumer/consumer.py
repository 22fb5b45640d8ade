"""The public share consumer; ``engine`` does the work."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Coroutine, Iterator, Mapping, Sequence
from functools import partial
from inspect import isawaitable
from itertools import chain, islice, repeat
from operator import length_hint
from types import TracebackType
from typing import Any, TypeAlias, Unpack

from ottla_protocol.errors import ErrorCode

from ..cluster import Cluster
from ..cluster.topic_names import topic_names
from ..consumer.consumer import CLOSE_SECONDS
from ..consumer.lifecycle import IteratedConsumer
from ..consumer.rows import Rows, to_records
from ..deadline import Deadline
from ..errors import (
    AcknowledgementError,
    ClientError,
    ClosedError,
    ConfigurationError,
    DeserializationError,
    RequestTimeoutError,
)
from ..meters import Metrics
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerRecord, TopicPartition
from .acknowledgements import AcknowledgeType
from .acquisition import Acquisition, Outgoing
from .engine import ShareEngine
from .settings import ShareConsumerOptions, ShareConsumerSettings

Record = ConsumerRecord[Any, Any]
AcknowledgementCommitCallback: TypeAlias = Callable[
    [Mapping[TopicPartition, frozenset[int]], ClientError | None], Awaitable[None] | None
]
"""Called with acknowledged offsets, and the error if the broker refused them."""


class ShareConsumer(IteratedConsumer):
    """Reads records in a share group (KIP-932), whose members share the records of each partition::

        async with ShareConsumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="packers") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.value, record.delivery_count)

    The broker locks each record for one member. An acknowledgement accepts the record, releases it for another
    delivery, or rejects it. With ``share_acknowledgement_mode="explicit"`` you acknowledge each record yourself::

        for record in await consumer.poll():
            consumer.acknowledge(record, AcknowledgeType.ACCEPT if process(record) else AcknowledgeType.RELEASE)

    A consumer belongs to one event loop. One task at a time may take records from it.
    """

    _engine: ShareEngine

    @accepts(ShareConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ShareConsumerOptions],
    ) -> None:
        """Options as Kafka's share consumer names them; times in milliseconds, sizes in bytes.

        :param topics: topics to subscribe to. You can call ``subscribe`` instead.
        :param bootstrap_servers: brokers to contact first: ``host:port``, separated by commas or as a list.
        :param group_id: the share group, which must be given. Where a new group begins, how long records are locked,
            and whether records of open transactions wait, are configs of the group, such as
            ``share.auto.offset.reset``.
        :param share_acknowledgement_mode: "implicit" accepts the records that you have when you ask for more, or call
            ``commit_sync``, ``commit_async`` or ``close``; not when an exception leaves ``async with``. With "explicit"
            you call ``acknowledge`` for each record.
        :param share_acquire_mode: "batch_optimized" acquires whole batches, also if they have more records than
            ``max_poll_records``; "record_limit" never acquires more (KIP-1206).
        :param max_poll_records: the most records that ``poll`` returns.
        :param max_poll_interval_ms: the longest time between two polls. After it the member leaves the group, and the
            next call raises PollIntervalExceededError, once.
        :param fetch_min_bytes: a broker may answer when it has this many bytes, or after ``fetch_max_wait_ms``.
        :param fetch_max_bytes: the largest response, exceeded only by a single larger batch.
        :param key_deserializer: called with the bytes of each key that isn't null; ``value_deserializer`` likewise.
        :param check_crcs: verify the checksum of each batch.
        :param client_rack: this consumer's rack.
        :param default_api_timeout_ms: the timeout of calls without one of their own, and of acknowledgements.

        All clients have the options of `ConnectionSettings` as well. Raises ConfigurationError for an invalid option.
        """
        settings = self._settings = ShareConsumerSettings.of(options, "ShareConsumer")
        self._engine = ShareEngine(settings, Cluster(bootstrap_servers, settings))
        self._hand_out = HandOut()
        self._callback: AcknowledgementCommitCallback | None = None
        if topics:
            self.subscribe(topics)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Send acknowledgements, release all other records, leave the group, disconnect, within ``timeout`` seconds.

        In the implicit mode, records that were handed out are accepted. A second call does nothing.
        """
        await self._close(Deadline(timeout), processed=True)

    async def _close(self, deadline: Deadline, *, processed: bool) -> None:
        self._closed_properly = True
        if self._engine.closed:
            return
        self._decide(processed=processed)
        await self._engine.close(deadline)
        await self._report()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The records that the application failed on are released, so that they are delivered again.
        await self._close(Deadline(CLOSE_SECONDS), processed=kind is None)

    def _disconnect(self) -> Callable[[], Coroutine[Any, Any, None]]:
        return partial(self._engine.close, Deadline(0.0))

    def __repr__(self) -> str:
        return f"<ShareConsumer of group {self._settings.group_id!r}>"

    def subscribe(self, topics: Collection[str] | str) -> None:
        """Read these topics. Replaces the subscription. Raises ConfigurationError unless they are names."""
        names = topic_names(topics)
        if self._engine.closed:
            raise ClosedError("the consumer is closed")
        self._engine.subscribe(names)

    async def unsubscribe(self) -> None:
        """Stop reading and leave the group. Records that you have may still be acknowledged."""
        self._engine.check()
        await self._engine.unsubscribe(self._engine.api_deadline())

    def subscription(self) -> frozenset[str]:
        """The subscribed topics."""
        return self._engine.topics

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the broker has this member read. Other members may read them, too."""
        return self._engine.assignment

    @property
    def _iterator(self) -> Iterator[ConsumerRecord[Any, Any]]:
        return self._hand_out.iterator

    async def _iterate(self) -> Iterator[ConsumerRecord[Any, Any]]:
        """Wait for records that the application takes one by one."""
        if not self._hand_out.left:
            await self._next(self._settings.max_poll_records, Deadline(None), one_by_one=True)
        return self._hand_out.iterator

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record. In the implicit mode, those before it are accepted a poll at a time.

        Raises the errors of ``poll``. Cancelling loses no record.
        """
        for record in self._hand_out.iterator:
            return record
        return next(await self._iterate())

    async def poll(
        self, timeout_ms: int | None = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Return up to ``max_records`` records as soon as there are some; none after ``timeout_ms``.

        ``timeout_ms`` None waits without limit; ``max_records`` None means ``max_poll_records``. Sends the
        acknowledgements of earlier records. Raises AcknowledgementError in the explicit mode if there are records that
        aren't acknowledged; DeserializationError for a record that is released unless you acknowledge the error;
        CorruptBatchError for records that are rejected; GroupError; PollIntervalExceededError; ClosedError.
        """
        count = self._settings.max_poll_records if max_records is None else max_records
        if count < 1:
            raise ConfigurationError(f"max_records must be at least 1, not {max_records}")
        deadline = Deadline(None if timeout_ms is None else timeout_ms / 1000)
        if not self._hand_out.left:
            await self._next(count, deadline, one_by_one=False)
        return list(islice(self._hand_out.iterator, count))

    async def _next(self, count: int, deadline: Deadline, *, one_by_one: bool) -> None:
        engine = self._engine
        engine.check()
        await self._report()
        self._decide()
        if engine.held.unacknowledged:
            raise AcknowledgementError(
                f"{engine.held.unacknowledged} records of the last poll are not acknowledged: in the explicit mode,"
                " acknowledge each record before the next poll"
            )
        engine.send(engine.api_deadline())
        self._hand_out = HandOut(await engine.poll(count, deadline), one_by_one=one_by_one)

    def _decide(self, *, processed: bool = True) -> None:
        """Note what the application has taken; in the implicit mode, accept it."""
        held = self._engine.held
        for acquisition, record in self._hand_out.newly_taken():
            held.hand_out(acquisition, record.topic_partition, record.offset)
        if self._settings.explicit:
            return
        current = self._hand_out.current
        if processed:
            held.accept_all()
        elif current is not None:
            held.accept_all(but=(current.topic_partition, current.offset))

    def _give_back(self, records: Sequence[ConsumerRecord[Any, Any]]) -> None:
        """The last records were taken for a call that was interrupted: hand them out again."""
        if records and not self._engine.closed:
            self._engine.held.withdraw((each.topic_partition, each.offset) for each in records)
            self._hand_out.give_back(records)

    def acknowledge(
        self,
        record: ConsumerRecord[Any, Any] | DeserializationError,
        type: AcknowledgeType = AcknowledgeType.ACCEPT,
    ) -> None:
        """Say what becomes of a record; the next poll or commit sends it. The last call for a record counts.

        Takes a DeserializationError of ``poll`` as well, to reject the record that can't be read. Raises
        AcknowledgementError in the implicit mode, and for a record that isn't held: it was not handed out, or its
        acknowledgement was sent before.
        """
        self._engine.check()
        if not self._settings.explicit:
            raise AcknowledgementError(
                'records are acknowledged implicitly: set share_acknowledgement_mode="explicit" to decide yourself'
            )
        self._decide()
        partition = record.partition if isinstance(record, DeserializationError) else record.topic_partition
        self._engine.held.acknowledge(partition, record.offset, AcknowledgeType(type))

    async def commit_sync(self, timeout_ms: int | None = None) -> dict[TopicPartition, ClientError | None]:
        """Send acknowledgements, and wait for each partition's outcome: None when they are persisted, or the error.

        In the implicit mode, records that were handed out are accepted. ``timeout_ms`` None means
        ``default_api_timeout_ms``. After an error the records are delivered again; INVALID_RECORD_STATE means that
        their locks had timed out.
        """
        deadline = self._engine.api_deadline(None if timeout_ms is None else timeout_ms / 1000)
        sent = self._send(deadline)
        if sent:
            await asyncio.wait([each.outcome for each in sent], timeout=deadline.left())
        results: dict[TopicPartition, ClientError | None] = {}
        for each in sent:
            late = RequestTimeoutError(
                "the broker has not answered yet; the acknowledgements may be persisted"
            )
            error = each.outcome.result() if each.outcome.done() else late
            partition = each.acquisition.partition
            results[partition] = results.get(partition) or error
        await self._report()
        return results

    def commit_async(self) -> None:
        """Send acknowledgements without waiting; the callback gets the outcome. In the implicit mode, accept before."""
        self._send(self._engine.api_deadline())

    def _send(self, deadline: Deadline) -> list[Outgoing]:
        self._engine.check()
        self._decide()
        return self._engine.send(deadline)

    def set_acknowledgement_commit_callback(self, callback: AcknowledgementCommitCallback | None) -> None:
        """Have ``callback`` called for acknowledgements that have an outcome; None ends that.

        ``poll``, ``commit_sync`` and ``close`` call it, for each partition with ``{partition: offsets}`` and None, or
        the error. It may be async, and what it raises comes out of that call.
        """
        self._callback = callback

    async def _report(self) -> None:
        for each in self._engine.outcomes():
            if self._callback is not None and each.acknowledgements.types:
                offsets = {each.acquisition.partition: frozenset(each.acknowledgements.types)}
                result = self._callback(offsets, each.outcome.result())
                if isawaitable(result):
                    await result

    def acquisition_lock_timeout_ms(self) -> int | None:
        """The time for which acquired records are locked, as the broker said last; None before the first records."""
        return self._engine.lock_ms

    def metrics(self) -> Metrics:
        """The consumer's counts, under the names of Java's: values by name, by group.

        ``metrics()["consumer-share-fetch-manager-metrics"]["records-consumed-total"]``. Rates and averages are over
        about half a minute, times are in milliseconds. It may be called from any thread, before the start and after the
        close.
        """
        from .metrics import share_consumer_metrics

        return share_consumer_metrics(self._engine)


async def poll_rows(consumer: ShareConsumer, *, timeout_ms: int, max_records: int) -> list[Rows]:
    """``ShareConsumer.poll`` as columns, for the commands; ``accept_rows`` acknowledges them."""
    await consumer._next(max_records, Deadline(timeout_ms / 1000), one_by_one=False)
    return consumer._hand_out.rows()


def accept_rows(consumer: ShareConsumer, rows: Rows) -> None:
    """Accept records of the last ``poll_rows``, in the explicit mode."""
    consumer._decide()
    partition = TopicPartition(rows.topic, rows.partition)
    for offset in rows.offsets:
        consumer._engine.held.acknowledge(partition, offset, AcknowledgeType.ACCEPT)


def unknown_topics(consumer: ShareConsumer) -> list[str]:
    """The subscribed topics that brokers don't know (any more), for the commands."""
    engine = consumer._engine
    return [
        name
        for name in sorted(engine.topics)
        if engine.cluster.topic_error(name) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    ]


class HandOut:
    """The records of one poll of the engine, and how far the application has come in them.

    The application holds a plain list iterator, as that of ``Consumer``: no client code runs between two records, and
    it may run in another thread.
    """

    def __init__(self, taken: Sequence[tuple[Acquisition, Rows]] = (), *, one_by_one: bool = False) -> None:
        """``one_by_one``: the application asks for each record when it has processed the one before."""
        self._records = to_records([rows for _, rows in taken])
        self._sources = list(chain.from_iterable(repeat(source, rows.count) for source, rows in taken))
        self._taken = taken
        self._known = 0
        self.iterator: Iterator[Record] = iter(self._records)
        self.one_by_one = one_by_one

    @property
    def left(self) -> int:
        """The number of records that the application has not taken."""
        return length_hint(self.iterator)

    @property
    def current(self) -> Record | None:
        """The record that the application works on, if it takes them one by one."""
        taken = len(self._records) - self.left
        return self._records[taken - 1] if self.one_by_one and taken else None

    def rows(self) -> list[Rows]:
        """Take all records at once, as columns."""
        self.iterator = iter(())
        return [rows for _, rows in self._taken]

    def newly_taken(self) -> Iterator[tuple[Acquisition, Record]]:
        """The records that the application has taken since the last call."""
        before, self._known = self._known, len(self._records) - self.left
        return zip(self._sources[before : self._known], self._records[before : self._known], strict=True)

    def give_back(self, records: Sequence[Record]) -> None:
        """Hand the last records that were taken out again: their call was interrupted."""
        first = len(self._records) - self.left - len(records)
        self._known = min(self._known, first)
        self.iterator = iter(self._records[first:])
