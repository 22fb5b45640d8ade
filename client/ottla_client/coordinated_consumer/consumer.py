"""The public consumer of the coordinator designed in 2012."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from contextlib import AsyncExitStack
from typing import Final, Unpack

from ottla_protocol.push import Broker, RegisterConsumerRequest

from ..cluster.addresses import parse_servers
from ..cluster.tasks import background
from ..consumer.consumer import CLOSE_SECONDS
from ..deadline import Deadline
from ..errors import BootstrapError, ClientError, ConfigurationError, RebalanceFailedError
from ..settings import accepts
from ..types import TopicPartition
from ..zookeeper_consumer.stream_engines import StreamOf
from ..zookeeper_consumer.streams_consumer import StreamsConsumer
from ..zookeeper_consumer.subscription import Subscription
from .fetchers import Fetchers
from .membership import CoordinatorMembership
from .settings import CoordinatedConsumerOptions, CoordinatedConsumerSettings

_log = logging.getLogger("ottla_client")

DEFAULT_COORDINATOR: Final = "127.0.0.1:9094"


class CoordinatedConsumer(StreamsConsumer):
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
        super().__init__(topics, settings)
        self._servers = parse_servers(coordinator_servers)
        self._membership: CoordinatorMembership | None = None
        self._fetchers: Fetchers | None = None
        self._running: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        """The coordinator names the brokers when the consumer joins."""

    async def _join(self, subscription: Subscription, count: int, stream_of: StreamOf) -> None:
        settings = self._settings

        async def fetchers_from(brokers: tuple[Broker, ...]) -> Fetchers:
            return await self._fetchers_from(brokers, count, stream_of)

        registration = RegisterConsumerRequest(
            settings.group_id,
            self._consumer_id,
            subscription.topic_count(),
            settings.enable_auto_commit,
            settings.auto_offset_reset,
            settings.session_timeout_ms,
        )
        member = self._membership = CoordinatorMembership(
            self._servers, registration, settings.request_timeout, fetchers_from
        )
        self._running = background(member.run(), f"the membership of consumer {self._consumer_id}")
        await self._wait_until_started(member, self._running)

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

    async def _fetchers_from(self, brokers: tuple[Broker, ...], count: int, stream_of: StreamOf) -> Fetchers:
        """The streams' readers, which fetch from the brokers that the coordinator names. Raises BootstrapError."""
        settings = self._settings
        servers: str | Sequence[str] = settings.bootstrap_servers or [
            f"[{broker.host}]:{broker.port}" if ":" in broker.host else f"{broker.host}:{broker.port}"
            for broker in brokers
        ]
        if self._fetchers is not None:
            if servers:
                self._move_streams(servers)
            return self._fetchers
        if not servers:
            raise BootstrapError("the coordinator names no broker to fetch from")
        await self._make_streams(servers, count)
        engines = [stream._consumer._engine for stream in self._streams]
        self._fetchers = Fetchers(engines, stream_of, settings.session_timeout_ms / 3000)
        return self._fetchers

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns, in all its streams."""
        fetchers = None if self._membership is None else self._membership.fetchers
        return frozenset() if fetchers is None else fetchers.partitions

    async def commit(self) -> None:
        """Commit all records that were handed out, in all streams. Raises CommitFailedError."""
        self._check()
        if self._membership is None or self._membership.fetchers is None:
            raise ConfigurationError("nothing is read yet: create streams first")
        await self._membership.commit(
            self._membership.fetchers.committed_by_hand(), self._settings.default_api_timeout_ms / 1000
        )

    async def _leave(self, processed: bool, timeout: float | None, stack: AsyncExitStack) -> None:
        # In this order: commit, leave the group, stop reading. The stack does the last first.
        self._stop_reading(stack)
        stack.push_async_callback(self._stop_member)
        member = self._membership
        if member is None or member.fetchers is None or not self._settings.enable_auto_commit:
            return
        member.fetchers.all_processed = processed
        offsets = member.fetchers.final()
        try:
            await member.commit(offsets, CLOSE_SECONDS if timeout is None else timeout)
        except ClientError as error:
            _log.warning("consumer %s: the last commit failed: %s", self._consumer_id, error)

    async def _stop_member(self) -> None:
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)
