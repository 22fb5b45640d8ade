"""The public ZooKeeper consumer."""

from __future__ import annotations

import asyncio
import logging
import os
import warnings
from collections.abc import AsyncIterator, Mapping
from contextlib import AsyncExitStack
from dataclasses import fields
from time import time
from types import TracebackType
from typing import Any, Final, Self, Unpack
from uuid import uuid4

from ottla_protocol.errors import ErrorCode

from ..admin import Admin, is_unknown_group
from ..cluster import Cluster
from ..consumer.consumer import CLOSE_SECONDS, Consumer
from ..deadline import Deadline
from ..errors import BootstrapError, ClientError, ClosedError, ConfigurationError, GroupError
from ..group.offsets import OffsetsClient
from ..settings import accepts
from ..types import ConsumerRecord, TopicPartition
from . import paths
from .assignors import STRATEGIES
from .offsets import GroupOffsets
from .reading import StreamOf, StreamReading
from .rebalancer import Rebalancer, wait_at_most
from .settings import ZookeeperConsumerOptions, ZookeeperConsumerSettings
from .stream import Stream
from .subscription import Subscription, TopicFilter
from .zookeeper import ZooKeeper

_log = logging.getLogger("ottla_client")

_CHECK_SECONDS: Final = 5.0
"""How long to look for members of the group that coordinate through the brokers."""
_LOOK_AGAIN: Final = 1.0
"""Seconds until ZooKeeper is asked for brokers again while there are none."""


class ZookeeperConsumer:
    """Reads records in a group that coordinates in ZooKeeper, as Kafka 0.8's high-level consumer does::

        async with ZookeeperConsumer("orders", zookeeper_connect="127.0.0.1:2181", group_id="billing") as consumer:
            async for record in consumer:
                print(record.topic, record.partition, record.offset, record.value)

    Java's consumers of 0.8 to 1.1 may be members of the same group. With several streams, each is read by a task::

        consumer = ZookeeperConsumer(zookeeper_connect="127.0.0.1:2181", group_id="billing")
        await consumer.start()
        streams = await consumer.create_streams({"orders": 2})
        await asyncio.gather(*(work(stream) for stream in streams["orders"]))

    A consumer belongs to one event loop.
    """

    _closed_properly = True  # for __del__ after a constructor that raised

    @accepts(ZookeeperConsumerSettings)
    def __init__(
        self,
        *topics: str,
        zookeeper_connect: str,
        **options: Unpack[ZookeeperConsumerOptions],
    ) -> None:
        """Options as Kafka 0.8's consumer names them, with underscores; times in milliseconds, sizes in bytes.

        :param topics: topics to read in one stream, by iterating over the consumer. You can call ``create_streams``
            or ``create_streams_by_filter`` instead.
        :param zookeeper_connect: ``HOST:PORT,HOST:PORT/chroot``, where the brokers are registered.
        :param group_id: the group, which must be given.
        :param consumer_id: the end of the member's name, unique in the group. None makes one up.
        :param zookeeper_session_timeout_ms: how long ZooKeeper waits for a sign of life before the group gives the
            partitions to others.
        :param zookeeper_connection_timeout_ms: how long ZooKeeper may take to answer at the start.
        :param rebalance_max_retries: how often to try a rebalance, ``rebalance_backoff_ms`` apart, before the
            application gets RebalanceFailedError. The consumer keeps trying.
        :param partition_assignment_strategy: "range" or "roundrobin", the same for all members.
        :param enable_auto_commit: commit processed records every ``auto_commit_interval_ms``, before partitions are
            given up, and in ``close``. Records count as processed when you ask for more, or call ``close``; not when
            an exception leaves ``async with``.
        :param auto_offset_reset: where to start when there is no committed offset, or the log no longer has the
            position: "smallest" or "largest".
        :param offsets_storage: "zookeeper" or "kafka".
        :param dual_commit_enabled: commit to both places, and start from the larger offset, during a migration.
        :param exclude_internal_topics: keep filters from matching Kafka's internal topics.

        The options about fetching are those of ``Consumer``. Raises ConfigurationError for an invalid option, and
        without the package kazoo (the extra ``zookeeper``).
        """
        settings = self._settings = ZookeeperConsumerSettings.of(options, "ZookeeperConsumer")
        self._zookeeper = ZooKeeper(
            zookeeper_connect,
            settings.zookeeper_session_timeout_ms,
            settings.zookeeper_connection_timeout_ms,
        )
        self._topics = topics
        self._consumer_id = f"{settings.group_id}_{settings.consumer_id or _unique_id()}"
        self._brokers: list[str] = []
        self._cluster: Cluster | None = None
        self._offsets: GroupOffsets | None = None
        self._streams: list[Stream] = []
        self._reading: StreamReading | None = None
        self._rebalancer: Rebalancer | None = None
        self._creating = False
        self._committing: asyncio.Task[None] | None = None
        self._started = False
        self._closed = False
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def consumer_id(self) -> str:
        """The member's name in the group."""
        return self._consumer_id

    def __repr__(self) -> str:
        return f"<ZookeeperConsumer of group {self._settings.group_id!r}>"

    async def start(self) -> None:
        """Connect to ZooKeeper and to the brokers; with ``topics``, join the group.

        Raises ConnectError for ZooKeeper, BootstrapError for the brokers, GroupError if the group has members that
        coordinate through the brokers, RebalanceFailedError.
        """
        if self._started or self._closed:
            raise ClosedError("the consumer was started before; make a new one")
        self._started = True
        self._closed_properly = False
        self._loop = asyncio.get_running_loop()
        try:
            await self._zookeeper.open()
            deadline = Deadline(self._settings.default_api_timeout_ms / 1000)
            self._brokers = await self._find_brokers(deadline)
            await self._check_group(deadline)
            self._offsets = await self._open_offsets(deadline)
            if self._topics:
                await self._create(Subscription.to_topics(dict.fromkeys(self._topics, 1)), 1, lambda *_: 0)
        except BaseException:
            await self._close(processed=False)
            raise

    async def _find_brokers(self, deadline: Deadline) -> list[str]:
        """The addresses of the registered brokers; waits for the first one. Raises BootstrapError."""
        changed = asyncio.Event()
        while True:
            changed.clear()
            found: list[str] = []
            for broker_id in await self._zookeeper.children(paths.BROKERS, changed.set):
                path = paths.broker(broker_id)
                node = await self._zookeeper.read(path)
                if node is not None:
                    address = paths.read_address(path, node, self._settings.security_protocol)
                    found += [] if address is None else [address]
            if found:
                return found
            if deadline.passed():
                raise BootstrapError(
                    f"no broker with a {self._settings.security_protocol} listener is registered in ZooKeeper at"
                    f" {self._zookeeper.connect}{paths.BROKERS}"
                )
            await wait_at_most(changed, deadline.left(_LOOK_AGAIN))

    async def _check_group(self, deadline: Deadline) -> None:
        """Raise GroupError while the group has members that coordinate through the brokers."""
        group_id = self._settings.group_id
        options: dict[str, Any] = {
            name: getattr(self._settings, name) for name in ("client_id", *_CONNECTION_OPTIONS)
        }
        async with Admin(self._brokers, **options) as admin:
            try:
                limit = deadline.left(_CHECK_SECONDS)
                group = (await admin.describe_groups([group_id], timeout=limit))[group_id]
            except ClientError as error:
                # A group in ZooKeeper works without a coordinator among the brokers.
                if not is_unknown_group(error):
                    _log.info("group %s could not be looked up among the brokers: %s", group_id, error)
                return
        if group.members:
            raise GroupError(
                ErrorCode.NON_EMPTY_GROUP,
                f"group {group_id!r} is held by {len(group.members)} members of the {group.type or 'classic'} protocol,"
                " which coordinate through the brokers; close them, or use another group_id (NON_EMPTY_GROUP)",
            )

    async def _open_offsets(self, deadline: Deadline) -> GroupOffsets:
        settings = self._settings
        client = None
        if settings.offsets_storage == "kafka" or settings.dual_commit_enabled:
            self._cluster = Cluster(self._brokers, settings)
            await self._cluster.start(deadline)
            client = OffsetsClient(self._cluster, settings.group_id)
        return GroupOffsets(
            self._zookeeper,
            client,
            settings.group_id,
            settings.offsets_storage,
            settings.request_timeout,
            dual=settings.dual_commit_enabled,
        )

    async def create_streams(self, streams: Mapping[str, int]) -> dict[str, list[Stream]]:
        """Join the group and read topics, each in a number of streams.

        May be called once. Returns when the consumer has its partitions. Raises RebalanceFailedError, ZooKeeperError,
        ConfigurationError.
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
        if self._creating or self._offsets is None:
            raise ConfigurationError("a consumer can create streams once; make a new one")
        self._creating = True
        settings = self._settings
        of_reading = settings.of_reading()
        options: dict[str, Any] = {
            field.name: getattr(of_reading, field.name) for field in fields(of_reading)
        }
        for index in range(count):
            consumer = Consumer(bootstrap_servers=self._brokers, **options)
            consumer._engine.managed = True
            await consumer.start()
            self._streams.append(Stream(consumer, f"{self._consumer_id}-{index}"))
        retry_seconds = settings.rebalance_backoff_ms * settings.rebalance_max_retries / 1000
        self._reading = StreamReading(
            [stream._consumer._engine for stream in self._streams],
            stream_of,
            self._offsets,
            retry_seconds / 2,
            auto_commit=settings.enable_auto_commit,
        )
        self._rebalancer = Rebalancer(
            self._zookeeper,
            self._reading,
            group_id=settings.group_id,
            consumer_id=self._consumer_id,
            subscription=subscription,
            assign=STRATEGIES[settings.partition_assignment_strategy],
            exclude_internal=settings.exclude_internal_topics,
            max_retries=settings.rebalance_max_retries,
            backoff_ms=settings.rebalance_backoff_ms,
            registration_ms=2 * settings.zookeeper_session_timeout_ms,
            now_ms=lambda: int(time() * 1000),
        )
        await self._rebalancer.start()
        if settings.enable_auto_commit:
            self._committing = asyncio.get_running_loop().create_task(self._commit_regularly())
        return list(self._streams)

    async def _commit_regularly(self) -> None:
        assert self._reading is not None
        while True:
            await asyncio.sleep(self._settings.auto_commit_interval_ms / 1000)
            await self._reading.commit_processed()

    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that this consumer owns, in all its streams."""
        return frozenset() if self._rebalancer is None else frozenset(self._rebalancer.owned)

    async def commit(self) -> None:
        """Commit all records that were handed out, in all streams. Raises ClientError."""
        self._check()
        if self._reading is None or self._offsets is None:
            raise ConfigurationError("nothing is read yet: create streams first")
        await self._offsets.commit(self._reading.handed_out())

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
        """Commit (if ``enable_auto_commit``), release the partitions, leave the group and disconnect.

        All records that were handed out count as processed. A second call does nothing. After ``timeout`` seconds the
        rest is left to ZooKeeper, which ends the session.
        """
        await self._close(processed=True, timeout=timeout)

    async def _close(self, *, processed: bool, timeout: float | None = CLOSE_SECONDS) -> None:
        self._closed_properly = True
        if self._closed:
            return
        self._closed = True
        if self._committing is not None:
            self._committing.cancel()
            await asyncio.gather(self._committing, return_exceptions=True)
        async with AsyncExitStack() as stack:
            # In this order: leave the group, stop reading, disconnect. The stack does the last first.
            stack.push_async_callback(self._zookeeper.close)
            if self._cluster is not None:
                stack.push_async_callback(self._cluster.close)
            for stream in self._streams:
                stack.push_async_callback(stream._consumer._engine.close, Deadline(CLOSE_SECONDS))
                stream._consumer._closed_properly = True
                stream._consumer._engine.gate.close()
                stream._consumer._engine.gate.shut()
            if self._rebalancer is None or self._reading is None:
                return
            self._reading.all_processed = processed
            try:
                async with asyncio.timeout(timeout):
                    await self._rebalancer.close()
            except (ClientError, TimeoutError) as error:
                _log.warning(
                    "consumer %s could not leave its group: %s", self._consumer_id, error or "no time"
                )

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


_CONNECTION_OPTIONS = (
    "request_timeout_ms",
    "security_protocol",
    "ssl_context",
    "ssl_cafile",
    "ssl_certfile",
    "ssl_keyfile",
    "ssl_password",
    "ssl_check_hostname",
    "sasl_mechanism",
    "sasl_plain_username",
    "sasl_plain_password",
    "sasl_tokenauth",
    "sasl_oauth_token_provider",
    "sasl_oauthbearer_method",
    "sasl_oauthbearer_client_id",
    "sasl_oauthbearer_client_secret",
    "sasl_oauthbearer_scope",
    "sasl_oauthbearer_extensions",
    "sasl_oauthbearer_token_endpoint_url",
    "https_ca_location",
)


def _unique_id() -> str:
    """As Java's consumer: host, time in milliseconds, and eight random hexadecimal digits."""
    host = "".join(each if each.isalnum() or each in ".-" else "-" for each in os.uname().nodename)
    return f"{host}-{int(time() * 1000)}-{uuid4().hex[:8]}"
