"""The consumer without asyncio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from itertools import chain
from typing import Any, Unpack

from ..consumer import Consumer as AsyncConsumer
from ..consumer import RebalanceListener
from ..consumer.consumer import CLOSE_SECONDS
from ..consumer.settings import ConsumerOptions, ConsumerSettings
from ..errors import ClosedError
from ..meters import Metrics
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerRecord, TopicPartition
from .iterating import IteratingClient
from .sync_client import EXIT_SECONDS, SyncClient, blocking, in_loop

_Record = ConsumerRecord[Any, Any]


class _Listener(RebalanceListener):
    """Calls a listener in a thread of its own, where it may use the consumer."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_lost, lost)


def _seek_back(consumer: SyncClient[AsyncConsumer], places: Iterable[tuple[str, int, int]]) -> None:
    """Records were taken for a call that was interrupted: hand them out again."""
    first: dict[TopicPartition, int] = {}
    for topic, partition, offset in places:
        first.setdefault(TopicPartition(topic, partition), offset)
    client = consumer._client

    def seek() -> None:
        for partition in first.keys() & client.assignment():
            client.seek(partition, first[partition])

    with suppress(ClosedError):
        consumer._post(seek)


def _give_back(consumer: SyncClient[AsyncConsumer], records: Iterable[_Record]) -> None:
    _seek_back(consumer, ((record.topic, record.partition, record.offset) for record in records))


class Consumer(IteratingClient[AsyncConsumer]):
    """``ottla_client.Consumer`` for code without asyncio::

        with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    One thread at a time may take records; any thread may call the other methods. The functions of a RebalanceListener
    are plain ones here. They run in a thread of their own, while the consumer is inside a poll.

    ``for`` gets records from the background a list at a time. Positions and commits still follow each record.
    """

    @accepts(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Takes the options of the async class."""
        super().__init__(AsyncConsumer(*topics, bootstrap_servers=bootstrap_servers, **options))

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group and disconnect, within ``timeout`` seconds.

        All records that were handed out count as processed. A second call does nothing.
        """
        self._end(lambda: self._client.close(timeout))

    @property
    def _usable(self) -> bool:
        engine = self._client._engine
        return not self._closed or (engine.closed and engine.usable)

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    def metrics(self) -> Metrics:
        """The consumer's counts; see the async method."""
        return self._client.metrics()

    poll = blocking(AsyncConsumer.poll, _give_back)
    getmany = blocking(
        AsyncConsumer.getmany,
        lambda consumer, lists: _give_back(consumer, chain.from_iterable(lists.values())),
    )
    poll_arrow = blocking(
        AsyncConsumer.poll_arrow,
        lambda consumer, table: _seek_back(
            consumer,
            zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True),
        ),
    )

    def subscribe(
        self,
        topics: Collection[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all that match a pattern; see the async method."""
        wrapped = _Listener(listener) if isinstance(listener, RebalanceListener) else listener
        self._subscribe(topics, pattern=pattern, listener=wrapped)

    _subscribe = in_loop(AsyncConsumer.subscribe)
    unsubscribe = in_loop(AsyncConsumer.unsubscribe)
    assign = in_loop(AsyncConsumer.assign)
    assignment = in_loop(AsyncConsumer.assignment)
    subscription = in_loop(AsyncConsumer.subscription)

    position = blocking(AsyncConsumer.position)
    seek = in_loop(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    seek_to_committed = blocking(AsyncConsumer.seek_to_committed)
    pause = in_loop(AsyncConsumer.pause)
    resume = in_loop(AsyncConsumer.resume)
    paused = in_loop(AsyncConsumer.paused)
    lag = in_loop(AsyncConsumer.lag)

    commit = blocking(AsyncConsumer.commit)
    committed = blocking(AsyncConsumer.committed)
    group_metadata = in_loop(AsyncConsumer.group_metadata)
    transaction_offsets = in_loop(AsyncConsumer.transaction_offsets)

    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    partitions_for_topic = partitions_for
    topics = blocking(AsyncConsumer.topics)
