"""The consumer without asyncio."""

from __future__ import annotations

import asyncio
import re
import threading
from collections import deque
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from types import TracebackType
from typing import TYPE_CHECKING, Any

from ..consumer import Consumer as AsyncConsumer
from ..consumer import RebalanceListener
from ..consumer.consumer import CLOSE_SECONDS
from ..consumer.settings import Deserializer, IsolationLevel, OffsetReset
from ..errors import ClientError, ClosedError
from ..group.assignors import Assignor
from ..types import ConsumerRecord, OffsetAndMetadata, TopicPartition
from .face import EXIT_SECONDS, Face, blocking, given, in_loop, log

if TYPE_CHECKING:
    import ssl

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


class Consumer(Face[AsyncConsumer]):
    """As ``ottla_client.Consumer``, for code without asyncio::

        with Consumer("orders", bootstrap_servers="127.0.0.1:9092", group_id="billing") as consumer:
            for record in consumer:
                print(record.topic, record.partition, record.offset, record.key, record.value)

    One thread at a time may take records; the other methods may be called from any. The functions of a
    RebalanceListener are plain ones here, and called in a thread of their own while the consumer is inside a poll.

    ``for`` takes records from the background a list at a time. Those of them that it has not come to are not
    committed, and a position is behind the last record that was handed out, as if they were taken one by one.
    """

    def __init__(
        self,
        *topics: str,
        bootstrap_servers: str | Sequence[str] = "127.0.0.1:9092",
        group_id: str | None = None,
        group_instance_id: str | None = None,
        client_id: str = "ottla-consumer",
        auto_offset_reset: OffsetReset = "latest",
        enable_auto_commit: bool = True,
        auto_commit_interval_ms: int = 5_000,
        isolation_level: IsolationLevel = "read_uncommitted",
        fetch_min_bytes: int = 1,
        fetch_max_wait_ms: int = 500,
        fetch_max_bytes: int = 52_428_800,
        max_partition_fetch_bytes: int = 1_048_576,
        max_poll_records: int = 500,
        max_poll_interval_ms: int = 300_000,
        session_timeout_ms: int = 45_000,
        heartbeat_interval_ms: int = 3_000,
        partition_assignment_strategy: Sequence[str | Assignor] = ("range", "cooperative-sticky"),
        key_deserializer: Deserializer | None = None,
        value_deserializer: Deserializer | None = None,
        check_crcs: bool = True,
        exclude_internal_topics: bool = True,
        allow_auto_create_topics: bool = False,
        client_rack: str = "",
        request_timeout_ms: int = 30_000,
        default_api_timeout_ms: int = 60_000,
        metadata_max_age_ms: int = 300_000,
        connections_max_idle_ms: int = 540_000,
        retry_backoff_ms: int = 100,
        retry_backoff_max_ms: int = 1_000,
        reconnect_backoff_ms: int = 50,
        reconnect_backoff_max_ms: int = 1_000,
        security_protocol: str = "PLAINTEXT",
        ssl_context: ssl.SSLContext | None = None,
    ) -> None:
        """Options as of the async class."""
        options = given(locals())
        super().__init__(AsyncConsumer(*options.pop("topics"), **options))
        self._taking = threading.Lock()
        """Held while what is ahead is changed, never while something is waited for."""
        self._ahead: deque[_Record] = deque()
        self._held: list[_Record] = []
        """The same of partitions that are paused."""

    # ---- life

    def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), leave the group, disconnect; within ``timeout`` seconds.

        Everything that was handed out counts as done with. A second call does nothing.
        """

        handed_back = self._hand_back()

        async def close() -> None:
            await self._settle(handed_back)
            await self._client.close(timeout)

        self._end(close)

    def _close_at_exit(self) -> None:
        self.close(EXIT_SECONDS)

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if kind is None:
            self.close()
            return

        async def leave() -> None:
            # The list at hand is not committed: its records will be handed out again.
            await self._client.__aexit__(kind, error, traceback)

        self._end(leave)

    # ---- records

    def __iter__(self) -> Iterator[_Record]:
        started = self._runner is not None and not self._closed
        lock, ahead = self._taking, self._ahead
        while True:
            with lock:
                record = ahead.popleft() if ahead else None
            if record is not None:
                yield record
                continue
            try:
                self._fill(None)
            except ClosedError:
                if started:
                    return  # closed while the loop went on
                raise

    def _fill(self, timeout_ms: int | None, max_records: int | None = None) -> None:
        """Wait for records, and put them ahead. An interrupted wait loses none."""
        take = self._ahead.extend
        take(self._call(self._client.poll(timeout_ms, max_records), take))

    def getone(self) -> _Record:
        """The next record, waited for as long as it takes; errors as of the async method."""
        while True:
            records = self.poll(None, 1)
            if records:
                return records[0]

    def poll(self, timeout_ms: int | None = 1_000, max_records: int | None = None) -> list[_Record]:
        """Records, as soon as there are some, up to ``max_records``; none when ``timeout_ms`` have passed.

        ``timeout_ms`` None waits for ever; ``max_records`` None means ``max_poll_records``. Each partition's records
        are in order. Errors as of the async method.
        """
        if not self._ahead:
            self._fill(timeout_ms, max_records)
        with self._taking:
            count = len(self._ahead) if max_records is None else min(max_records, len(self._ahead))
            return [self._ahead.popleft() for _ in range(count)]

    def getmany(
        self, *partitions: TopicPartition, timeout_ms: int | None = 0, max_records: int | None = None
    ) -> dict[TopicPartition, list[_Record]]:
        """As ``poll``, by partition, and of these partitions only if some are named."""
        only = frozenset(TopicPartition(*partition) for partition in partitions)
        with self._taking:
            mine = [each for each in self._ahead if not only or each.topic_partition in only][:max_records]
            taken = {(each.topic_partition, each.offset) for each in mine}
            self._keep(lambda each: (each.topic_partition, each.offset) not in taken)
        if not mine:
            return self._call(
                self._client.getmany(*partitions, timeout_ms=timeout_ms, max_records=max_records),
                self._rescue,
            )
        by_partition: dict[TopicPartition, list[_Record]] = {}
        for record in mine:
            by_partition.setdefault(record.topic_partition, []).append(record)
        return by_partition

    def _rescue(self, taken: dict[TopicPartition, list[_Record]]) -> None:
        for records in taken.values():
            self._ahead.extend(records)

    def poll_arrow(
        self, timeout_ms: int | None = 1_000, max_records: int = 100_000, *, headers: bool = False
    ) -> pyarrow.Table:
        """Records as an Arrow table, as soon as there are some; columns and errors as of the async method.

        An interrupted wait may lose the table that it has just come to: seek back, or begin from what is committed.
        """
        handed_back = self._hand_back()

        async def take() -> pyarrow.Table:
            self._seek_back(handed_back)
            return await self._client.poll_arrow(timeout_ms, max_records, headers=headers)

        return self._call(take())

    # ---- what was taken from the background and not handed out

    def _keep(self, wanted: Callable[[_Record], bool]) -> None:
        kept = [record for record in self._ahead if wanted(record)]
        self._ahead.clear()
        self._ahead.extend(kept)

    def _first_ahead(self) -> dict[TopicPartition, int]:
        """By partition, the first offset that is ahead."""
        first: dict[TopicPartition, int] = {}
        with self._taking:
            for record in (*self._ahead, *self._held):
                partition = record.topic_partition
                first[partition] = min(record.offset, first.get(partition, record.offset))
        return first

    def _drop(self, partitions: Collection[TopicPartition]) -> None:
        """Forget what is ahead of these partitions, of all if there are none."""
        with self._taking:
            self._keep(lambda each: bool(partitions) and each.topic_partition not in partitions)
            self._held = [
                each for each in self._held if partitions and each.topic_partition not in partitions
            ]

    def _hand_back(self) -> dict[TopicPartition, int]:
        """Forget all that is ahead; where the background has to go on instead."""
        first = self._first_ahead()
        self._drop(())
        return first

    def _seek_back(self, handed_back: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Runs in the loop. Returns those of the positions whose partitions are still this consumer's."""
        assigned = self._client.assignment()
        mine = {each: offset for each, offset in handed_back.items() if each in assigned}
        for partition, offset in mine.items():
            self._client.seek(partition, offset)
        return mine

    async def _settle(self, handed_back: Mapping[TopicPartition, int]) -> None:
        """At the end: what was handed out is done with, and committed if offsets commit themselves."""
        mine = self._seek_back(handed_back)
        settings = self._client._settings
        if mine and settings.enable_auto_commit and settings.group_id is not None:
            try:
                await self._client.commit(mine)
            except ClientError as error:
                log.warning("what was read last could not be committed, and will be read again: %s", error)

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
        """Change what is read; what was taken ahead is given back first."""
        if self._runner is None and not self._closed:
            change()
            return

        handed_back = self._hand_back()

        async def run() -> None:
            self._seek_back(handed_back)
            change()

        self._call(run())

    assignment = in_loop(AsyncConsumer.assignment)
    subscription = in_loop(AsyncConsumer.subscription)

    # ---- positions

    def position(self, partition: TopicPartition) -> int:
        """The offset of the next record to be handed out; waits until it is known. Errors as of the async method."""
        behind = self._call(self._client.position(partition))
        return self._first_ahead().get(TopicPartition(*partition), behind)

    def seek(self, partition: TopicPartition, offset: int) -> None:
        """Go on at ``offset``, whatever is buffered. Also the way past a record that can't be read."""
        self._seek(partition, offset)
        self._drop((TopicPartition(*partition),))

    def seek_to_beginning(self, *partitions: TopicPartition) -> None:
        """Go on at the first record that there is; of all assigned partitions, if none are named."""
        self._seek_to_beginning(*partitions)
        self._drop(partitions)

    def seek_to_end(self, *partitions: TopicPartition) -> None:
        """Go on behind the last record that there is, which for read_committed is the last that is decided."""
        self._seek_to_end(*partitions)
        self._drop(partitions)

    _seek = in_loop(AsyncConsumer.seek)
    _seek_to_beginning = blocking(AsyncConsumer.seek_to_beginning)
    _seek_to_end = blocking(AsyncConsumer.seek_to_end)
    _pause = in_loop(AsyncConsumer.pause)
    _resume = in_loop(AsyncConsumer.resume)

    def pause(self, *partitions: TopicPartition) -> None:
        """Hand out nothing of these partitions until ``resume``; what is buffered of them is kept."""
        self._pause(*partitions)
        with self._taking:
            self._held += [each for each in self._ahead if each.topic_partition in partitions]
            self._keep(lambda each: each.topic_partition not in partitions)

    def resume(self, *partitions: TopicPartition) -> None:
        """Go on with paused partitions."""
        with self._taking:
            back = [each for each in self._held if each.topic_partition in partitions]
            self._held = [each for each in self._held if each.topic_partition not in partitions]
            self._ahead.extendleft(reversed(back))
        self._resume(*partitions)

    paused = in_loop(AsyncConsumer.paused)

    def lag(self, partition: TopicPartition) -> int | None:
        """How many offsets the position is behind the end, as the last fetch told; None before there was one."""

        behind = self._lag(partition)
        first = self._first_ahead().get(TopicPartition(*partition))
        if behind is None or first is None:
            return behind
        return behind + self._call(self._client.position(partition)) - first

    _lag = in_loop(AsyncConsumer.lag)

    # ---- the group's offsets

    def commit(self, offsets: Mapping[TopicPartition, int | OffsetAndMetadata] | None = None) -> None:
        """Commit offsets, which are those of the next records to read; None: of all that was handed out.

        Errors as of the async method.
        """

        first = self._first_ahead() if offsets is None else {}

        async def commit() -> None:
            if not first:
                await self._client.commit(offsets)
                return
            exact: dict[TopicPartition, int | OffsetAndMetadata] = dict(first)
            for partition in self._client.assignment() - first.keys():
                exact[partition] = await self._client.position(partition)
            await self._client.commit(exact)

        self._call(commit())

    committed = blocking(AsyncConsumer.committed)

    # ---- what the brokers know

    offsets_for_times = blocking(AsyncConsumer.offsets_for_times)
    beginning_offsets = blocking(AsyncConsumer.beginning_offsets)
    end_offsets = blocking(AsyncConsumer.end_offsets)
    partitions_for = blocking(AsyncConsumer.partitions_for)
    topics = blocking(AsyncConsumer.topics)
