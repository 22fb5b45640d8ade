"""The public consumer of the coordinator designed in 2012."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import fields
from time import time
from types import TracebackType
from typing import Any, Final, Self, Unpack
from uuid import uuid4

from ottla_protocol.push import Broker, RegisterConsumerRequest

from ..cluster.addresses import parse_servers
from ..consumer.consumer import CLOSE_SECONDS, Consumer
from ..deadline import Deadline
from ..errors import BootstrapError, ClientError, ClosedError, ConfigurationError, RebalanceFailedError
from ..settings import accepts
from ..types import ConsumerRecord, TopicPartition
from ..zookeeper_consumer.reading import StreamOf
from ..zookeeper_consumer.stream import Stream
from ..zookeeper_consumer.subscription import Subscription, TopicFilter
from .fetchers import Fetchers
from .membership import CoordinatorMembership
from .settings import CoordinatedConsumerOptions, CoordinatedConsumerSettings

_log = logging.getLogger("ottla_client")

DEFAULT_COORDINATOR: Final = "127.0.0.1:9094"


class CoordinatedConsumer:
    """Reads records in a group whose coordinator, designed in 2012, says what to read::

        async with CoordinatedConsumer("orders", coordinator_servers="127.0.0.1:9094", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    The brokers need ``coordinator.listener``, which only Ottla has. With several streams, each is read by a task::

        consumer = CoordinatedConsumer(group_id="billing")
        await consumer.start()
        streams = await consumer.create_streams({"orders": 2})
        await asyncio.gather(*(work(stream) for stream in streams["orders"]))

    A consumer belongs to one event loop.
    """

    _closed_properly = True  # for __del__ after a constructor that raised

    @accepts(CoordinatedConsumerSettings)
    def __init__(
        self,
        *topics: str,
        coordinator_servers: str | Sequence[str] = DEFAULT_COORDINATOR,
        **options: Unpack[CoordinatedConsumerOptions],
    ) -> None:
        """Times in milliseconds, sizes in bytes.

        :param topics: topics to read in one stream, by iterating over the consumer. You can call ``create_streams``
            or ``create_streams_by_filter`` instead.
        :param coordinator_servers: ``HOST:PORT`` of the ``coordinator.listener`` of some brokers, separated by commas;
            any of them knows the coordinator.
        :param group_id: the group, which must be given.
        :param consumer_id: the member's name, unique in the group. None makes one up.
        :param bootstrap_servers: brokers to fetch from. None takes those that the coordinator names.
        :param session_timeout_ms: how long the consumer may be silent before the group gives its partitions to others.
        :param enable_auto_commit: have processed records committed with each ping, before partitions are given up, and
            in ``close``. Records count as processed when you ask for more, or call ``close``; not when an exception
            leaves ``async with``.
        :param auto_offset_reset: where to start when there is no committed offset, or the log no longer has the
            position: "smallest" or "largest".

        The options about fetching are those of ``Consumer``. Raises ConfigurationError for an invalid option.
        """
        settings = self._settings = CoordinatedConsumerSettings.of(options, "CoordinatedConsumer")
        self._servers = parse_servers(coordinator_servers)
        self._topics = topics
        self._consumer_id = f"{settings.group_id}_{settings.consumer_id or _unique_id()}"
        self._streams: list[Stream] = []
        self._membership: CoordinatorMembership | None = None
        self._running: asyncio.Task[None] | None = None
        self._creating = False
        self._started = False
        self._closed = False

    @property
    def consumer_id(self) -> str:
        """The member's name in the group."""
        return self._consumer_id

    def __repr__(self) -> str:
        return f"<CoordinatedConsumer of group {self._settings.group_id!r}>"

    async def start(self) -> None:
        """With ``topics``, join the group; otherwise ``create_streams`` does.

        Raises GroupError if the coordinator refuses the consumer, with its reason; BootstrapError.
        """
        if self._started or self._closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._started = True
        self._closed_properly = False
        try:
            if self._topics:
                await self._create(Subscription.to_topics(dict.fromkeys(self._topics, 1)), 1, lambda *_: 0)
        except BaseException:
            await self._close(processed=False)
            raise

    async def create_streams(self, streams: Mapping[str, int]) -> dict[str, list[Stream]]:
        """Join the group and read topics, each in a number of streams.

        May be called once. Returns when the coordinator has started the consumer's fetchers. Raises GroupError,
        BootstrapError, RebalanceFailedError, ConfigurationError.
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
        settings = self._settings

        async def make_fetchers(brokers: tuple[Broker, ...]) -> Fetchers:
            return await self._make_fetchers(brokers, count, stream_of)

        registration = RegisterConsumerRequest(
            settings.group_id,
            self._consumer_id,
            subscription.topic_count(),
            settings.enable_auto_commit,
            settings.auto_offset_reset,
            settings.session_timeout_ms,
        )
        member = self._membership = CoordinatorMembership(
            self._servers, registration, settings.request_timeout, make_fetchers
        )
        self._running = asyncio.get_running_loop().create_task(member.run())
        await self._wait_until_started(member, self._running)
        return list(self._streams)

    async def _wait_until_started(self, member: CoordinatorMembership, running: asyncio.Task[None]) -> None:
        deadline = Deadline(self._settings.default_api_timeout_ms / 1000)
        running.add_done_callback(lambda _: member.news.set())
        while not member.started.is_set():
            if running.done():
                running.result()  # a defect
            if member.failed is not None:
                raise member.failed
            member.news.clear()
            try:
                async with deadline.timeout():
                    await member.news.wait()
            except TimeoutError:
                servers = ", ".join(f"{host}:{port}" for host, port in self._servers)
                raise RebalanceFailedError(
                    f"no coordinator has started consumer {self._consumer_id} within"
                    f" {self._settings.default_api_timeout_ms} ms; asked: {servers}"
                ) from None

    async def _make_fetchers(self, brokers: tuple[Broker, ...], count: int, stream_of: StreamOf) -> Fetchers:
        """The streams' readers, now that the coordinator has named the brokers. Raises BootstrapError."""
        settings = self._settings
        of_reading = settings.of_reading()
        options: dict[str, Any] = {
            field.name: getattr(of_reading, field.name) for field in fields(of_reading)
        }
        servers: str | Sequence[str] = settings.bootstrap_servers or [
            f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"
            for broker in brokers
        ]
        if not servers:
            raise BootstrapError("the coordinator names no broker to fetch from")
        for index in range(len(self._streams), count):
            consumer = Consumer(bootstrap_servers=servers, **options)
            consumer._engine.managed = True
            try:
                await consumer.start()
            except BaseException:
                consumer._closed_properly = True
                raise
            self._streams.append(Stream(consumer, f"{self._consumer_id}-{index}"))
        engines = [stream._consumer._engine for stream in self._streams]
        return Fetchers(engines, stream_of, settings.session_timeout_ms / 3000)

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns, in all its streams."""
        fetchers = None if self._membership is None else self._membership.fetchers
        return frozenset() if fetchers is None else fetchers.partitions

    async def commit(self) -> None:
        """Commit all records that were handed out, in all streams. Raises CommitFailedError."""
        self._check()
        if self._membership is None or self._membership.fetchers is None:
            raise ConfigurationError("nothing is read yet: create streams first")
        await self._membership.commit(self._membership.fetchers.handed_out(), self._settings.request_timeout)

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
        """Commit (if ``enable_auto_commit``), leave the group and disconnect.

        All records that were handed out count as processed. A second call does nothing.
        """
        await self._close(processed=True, timeout=timeout)

    async def _close(self, *, processed: bool, timeout: float | None = CLOSE_SECONDS) -> None:
        self._closed_properly = True
        if self._closed:
            return
        self._closed = True
        async with AsyncExitStack() as stack:
            # In this order: commit, leave the group, stop reading. The stack does the last first.
            for stream in self._streams:
                stack.push_async_callback(stream._consumer._engine.close, Deadline(CLOSE_SECONDS))
                stream._consumer._closed_properly = True
                stream._consumer._engine.gate.close()
                stream._consumer._engine.gate.shut()
            stack.push_async_callback(self._leave)
            member = self._membership
            if member is None or member.fetchers is None or not self._settings.enable_auto_commit:
                return
            member.fetchers.all_processed = processed
            offsets = member.fetchers.final()
            try:
                await member.commit(offsets, CLOSE_SECONDS if timeout is None else timeout)
            except ClientError as error:
                _log.warning("consumer %s: the last commit failed: %s", self._consumer_id, error)

    async def _leave(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def __aenter__(self) -> Self:
        await self.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        # The records that the application failed on are not committed, so that they are delivered again.
        await self._close(processed=kind is None)

    def __del__(self) -> None:
        if self._closed_properly:
            return
        warnings.warn(f"{self!r} was not closed", ResourceWarning, source=self, stacklevel=2)


def _unique_id() -> str:
    """As Java's consumer: host, time in milliseconds, and eight random hexadecimal digits."""
    host = "".join(each if each.isalnum() or each in ".-" else "-" for each in os.uname().nodename)[:100]
    return f"{host}-{int(time() * 1000)}-{uuid4().hex[:8]}"
