"""The base of members of groups that read in streams, by whatever they are assigned partitions."""

from __future__ import annotations

import os
from abc import abstractmethod
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields
from time import time
from types import TracebackType
from typing import Any
from uuid import uuid4

from ..cluster.addresses import parse_servers
from ..consumer.consumer import CLOSE_SECONDS, Consumer
from ..consumer.lifecycle import Closable
from ..deadline import Deadline
from ..errors import ClosedError, ConfigurationError
from ..types import ConsumerRecord, TopicPartition
from .settings import StreamsSettings
from .stream import Stream
from .stream_engines import StreamOf
from .subscription import Subscription, TopicFilter


class StreamsConsumer(Closable):
    """A member of a group, with the readers of its streams."""

    def __init__(self, topics: tuple[str, ...], settings: StreamsSettings) -> None:
        self._topics = topics
        self._group_id = settings.group_id
        self._consumer_id = f"{settings.group_id}_{settings.consumer_id or _unique_id()}"
        self._of_reading = settings.of_reading
        self._streams: list[Stream] = []
        self._creating = False
        self._started = False
        self._closed = False

    @property
    def consumer_id(self) -> str:
        """The member's name in the group."""
        return self._consumer_id

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of group {self._group_id!r}>"

    async def start(self) -> None:
        """Connect; with ``topics``, join the group, otherwise ``create_streams`` does.

        Raises GroupError if the group is held in another way or the coordinator refuses the consumer, with the reason;
        BootstrapError, ConnectError, RebalanceFailedError.
        """
        if self._started or self._closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._started = True
        self._closed_properly = False
        try:
            await self._connect()
            if self._topics:
                await self._create(Subscription.to_topics(dict.fromkeys(self._topics, 1)), 1, lambda *_: 0)
        except BaseException:
            await self._close(processed=False)
            raise

    async def create_streams(self, streams: Mapping[str, int]) -> dict[str, list[Stream]]:
        """Join the group and read topics, each in a number of streams.

        May be called once. Returns when the consumer knows its partitions. Raises the errors of ``start``,
        ZooKeeperError, ConfigurationError.
        """
        subscription = Subscription.to_topics(streams)
        places = [(topic, index) for topic, count in streams.items() for index in range(count)]
        made = await self._create(
            subscription, len(places), lambda topic, index: places.index((topic, index))
        )
        found: dict[str, list[Stream]] = {topic: [] for topic in streams}
        for (topic, _), stream in zip(places, made, strict=True):
            found[topic].append(stream)
        return found

    async def create_streams_by_filter(self, topics: TopicFilter, streams: int = 1) -> list[Stream]:
        """Join the group and read all topics that a ``Whitelist`` or ``Blacklist`` allows, in a number of streams.

        New topics are read as they appear. May be called once. Raises the errors of ``create_streams``.
        """
        return await self._create(Subscription.by_filter(topics, streams), streams, lambda _, index: index)

    async def _create(self, subscription: Subscription, count: int, stream_of: StreamOf) -> list[Stream]:
        self._check()
        if self._creating:
            raise ConfigurationError("a consumer can create streams once; make a new one")
        self._creating = True
        await self._join(subscription, count, stream_of)
        return list(self._streams)

    async def _make_streams(self, servers: str | Sequence[str], count: int) -> None:
        """Connect the readers of the streams that don't have one yet. Raises BootstrapError."""
        of_reading = self._of_reading()
        options: dict[str, Any] = {
            field.name: getattr(of_reading, field.name) for field in fields(of_reading)
        }
        for index in range(len(self._streams), count):
            consumer = Consumer(bootstrap_servers=servers, **options)
            consumer._engine.managed = True
            try:
                await consumer.start()
            except BaseException:
                consumer._closed_properly = True
                raise
            self._streams.append(Stream(consumer, f"{self._consumer_id}-{index}"))

    def _move_streams(self, servers: str | Sequence[str]) -> None:
        """Have the streams' readers look for the brokers at these addresses from now on."""
        addresses = parse_servers(servers)
        for stream in self._streams:
            stream._consumer._engine.cluster.use_bootstrap(addresses)

    @abstractmethod
    async def _connect(self) -> None:
        """Do what comes before joining the group."""

    @abstractmethod
    async def _join(self, subscription: Subscription, count: int, stream_of: StreamOf) -> None:
        """Join the group, and make the streams."""

    @abstractmethod
    async def _leave(self, processed: bool, timeout: float | None, stack: AsyncExitStack) -> None:
        """Commit and leave the group; the ``stack`` ends the streams' reading, and what is pushed on it, afterwards."""

    @abstractmethod
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns, in all its streams."""

    @abstractmethod
    async def commit(self) -> None:
        """Commit all records that were handed out, in all streams. Raises ClientError."""

    def _check(self) -> None:
        if self._closed:
            raise ClosedError("the consumer is closed")
        if not self._started:
            raise ClosedError("the consumer is not started: await start(), or use `async with`")

    def _only(self) -> Stream:
        """The stream of the topics in the constructor. Raises ConfigurationError."""
        self._check()
        if not self._topics:
            raise ConfigurationError(
                "the consumer has no topics; read the streams that create_streams returns"
            )
        return self._streams[0]

    def __aiter__(self) -> AsyncIterator[ConsumerRecord[Any, Any]]:
        return self._only().__aiter__()

    async def getone(self) -> ConsumerRecord[Any, Any]:
        """Wait for the next record of the topics in the constructor; see ``Stream.getone``."""
        return await self._only().getone()

    async def poll(
        self, timeout_ms: int | None = 1_000, max_records: int | None = None
    ) -> list[ConsumerRecord[Any, Any]]:
        """Records of the topics in the constructor; see ``Stream.poll``."""
        return await self._only().poll(timeout_ms, max_records)

    async def close(self, timeout: float | None = CLOSE_SECONDS) -> None:
        """Commit (if ``enable_auto_commit``), give up the partitions, leave the group and disconnect.

        All records that were handed out count as processed. A second call does nothing. After ``timeout`` seconds the
        group finds out by itself, at the end of the session.
        """
        await self._close(processed=True, timeout=timeout)

    async def _close(self, *, processed: bool, timeout: float | None = CLOSE_SECONDS) -> None:
        self._closed_properly = True
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as stack:
            await self._leave(processed, timeout, stack)

    def _stop_reading(self, stack: AsyncExitStack) -> None:
        """Hand out nothing more, and have ``stack`` disconnect the readers."""
        for stream in self._streams:
            engine = stream._consumer._engine
            stack.push_async_callback(engine.close, Deadline(CLOSE_SECONDS))
            stream._consumer._closed_properly = True
            engine.gate.close()
            engine.gate.shut()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The records that the application failed on are not committed, so that they are delivered again.
        await self._close(processed=kind is None)


def _unique_id() -> str:
    """As Java's consumer: host, time in milliseconds, and eight random hexadecimal digits."""
    host = "".join(each if each.isalnum() or each in ".-" else "-" for each in os.uname().nodename)[:100]
    return f"{host}-{int(time() * 1000)}-{uuid4().hex[:8]}"
