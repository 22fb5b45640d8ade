"""The consumer without asyncio."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import chain
from types import TracebackType
from typing import TYPE_CHECKING, Any, Unpack

from ..consumer import Consumer as AsyncConsumer
from ..consumer import RebalanceListener
from ..consumer.consumer import CLOSE_SECONDS
from ..consumer.settings import ConsumerOptions, ConsumerSettings
from ..errors import ClosedError
from ..settings import DEFAULT_BOOTSTRAP, accepts
from ..types import ConsumerRecord, TopicPartition
from .sync_client import EXIT_SECONDS, SyncClient, blocking, in_loop

if TYPE_CHECKING:
    import pyarrow

_Record = ConsumerRecord[Any, Any]


class _Listener(RebalanceListener):
    """Calls a listener in a thread of its own, so that it may use the consumer, which is waited for there."""

    def __init__(self, listener: RebalanceListener) -> None:
        self._listener = listener

    async def on_partitions_revoked(self, revoked: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_revoked, revoked)

    async def on_partitions_assigned(self, assigned: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_assigned, assigned)

    async def on_partitions_lost(self, lost: frozenset[TopicPartition]) -> None:
        await asyncio.to_thread(self._listener.on_partitions_lost, lost)


class Consumer(SyncClient[AsyncConsumer]):
    """As ``ottla_client.Consumer``, for code without asyncio::

        with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    One thread at a time may take records; the other methods may be called from any. The functions of a
    RebalanceListener are plain ones here, and called in a thread of their own while the consumer is inside a poll.

    ``for`` gets records from the background a list at a time. Positions and commits still follow each record.
    """

    @accepts(ConsumerSettings)
    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = DEFAULT_BOOTSTRAP,
        **options: Unpack[ConsumerOptions],
    ) -> None:
        """Options as of the async class."""
        super().__init__(AsyncConsumer(*topics, bootstrap_servers=bootstrap_servers, **options))

    # ---- life

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group, disconnect; within ``timeout`` seconds.

        Everything that was handed out counts as done with. A second call does nothing.
        """
        self._end(lambda: self._client.close(timeout))

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._end(lambda: self._client.__aexit__(kind, error, traceback))

    # ---- records

    def __iter__(self) -> Iterator[_Record]:
        return chain.from_iterable(self._iterators())

    def _iterators(self) -> Iterator[Iterator[_Record]]:
        started = self._runner is not None and not self._closed
        while True:
            try:
                records = self._call(self._client._iterate())
            except ClosedError:
                if started:
                    return  # closed while the loop went on
                raise
            yield records

    def getone(self) -> _Record:
        """The next record, waited for as long as it takes; errors as of the async method."""
        while True:
            for record in self._client._iterator:
                return record
            self._call(self._client._iterate())

    def poll(self, timeout_ms: int | None = 1_000, max_records: int | None = None) -> list[_Record]:
        """Records, as soon as there are some, up to ``max_records``; none when ``timeout_ms`` have passed.

        ``timeout_ms`` None waits for ever; ``max_records`` None means ``max_poll_records``. Each partition's records
        are in order. Errors as of the async method.
        """
        return self._call(self._client.poll(timeout_ms, max_records), self._give_back)

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[_Record]]:
        """As ``poll``, by partition, and of these partitions only if some are named."""
        return self._call(
            self._client.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records),
            lambda records: self._give_back(chain.from_iterable(records.values())),
        )

    def poll_arrow(
        self, timeout_ms: int | None = 1_000, max_records: int = 100_000, *, headers: bool = False
    ) -> pyarrow.Table:
        """Records as an Arrow table, as soon as there are some; columns and errors as of the async method."""
        return self._call(
            self._client.poll_arrow(timeout_ms, max_records, headers=headers),
            lambda table: self._seek_back(
                zip(*(table[name].to_pylist() for name in ("topic", "partition", "offset")), strict=True)
            ),
        )

    def _give_back(self, records: Iterable[_Record]) -> None:
        self._seek_back((record.topic, record.partition, record.offset) for record in records)

    def _seek_back(self, places: Iterable[tuple[str, int, int]]) -> None:
        """Records were taken for a call that was interrupted: hand them out again."""
        first: dict[TopicPartition, int] = {}
        for topic, partition, offset in places:
            first.setdefault(TopicPartition(topic, partition), offset)

        def seek() -> None:
            for partition in first.keys() & self._client.assignment():
                self._client.seek(partition, first[partition])

        assert self._runner is not None
        with suppress(ClosedError):
            self._runner.post(seek)

    # ---- what to read

    def subscribe(
        self,
        topics: Collection[str] | str | None = None,
        *,
        pattern: str | re.Pattern[str] | None = None,
        listener: RebalanceListener | None = None,
    ) -> None:
        """Read these topics, or all that match a pattern; as the async method, also before ``start``."""
        wrapped = _Listener(listener) if isinstance(listener, RebalanceListener) else listener
        self._arrange(lambda: self._client.subscribe(topics, pattern=pattern, listener=wrapped))

    def unsubscribe(self) -> None:
        """Read nothing any more. A member leaves its group, in the background; the listener is told."""
        self._arrange(self._client.unsubscribe)

    def assign(self, partitions: Collection[TopicPartition]) -> None:
        """Read exactly these partitions; as the async method, also before ``start``."""
        self._arrange(lambda: self._client.assign(partitions))

    def _arrange(self, change: Callable[[], None]) -> None:
        """Change what is read: in the loop, once it runs."""
        if self._runner is None and not self._closed:
            change()
            return

        async def run() -> None:
            change()

        self._call(run())

    assignment = in_loop(AsyncConsumer.assignment)
    subscription = in_loop(AsyncConsumer.subscription)

    # ---- positions

    position = blocking(AsyncConsumer.position)
    seek = in_loop(AsyncConsumer.seek)
    seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    seek_to_end = blocking(AsyncConsumer.seek_to_end)
    pause = in_loop(AsyncConsumer.pause)
    resume = in_loop(AsyncConsumer.resume)
    paused = in_loop(AsyncConsumer.paused)
    lag = in_loop(AsyncConsumer.lag)

    # ---- the group's offsets

    commit = blocking(AsyncConsumer.commit)
    committed = blocking(AsyncConsumer.committed)

    # ---- what the brokers know

    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    partitions_for_topic = partitions_for
    topics = blocking(AsyncConsumer.topics)
