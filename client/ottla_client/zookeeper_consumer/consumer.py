"""The public ZooKeeper consumer."""

from __future__ import annotations

import asyncio
import logging
from contextlib import AsyncExitStack
from time import time
from typing import Any, Final, Unpack

from ottla_protocol.errors import ErrorCode

from ..admin import Admin, is_unknown_group
from ..cluster import Cluster
from ..cluster.addresses import parse_servers
from ..cluster.tasks import background
from ..deadline import Deadline
from ..errors import ClientError, ConfigurationError, GroupError
from ..group.offsets import OffsetsClient
from ..settings import ConnectionSettings, accepts
from ..types import IN_ZOOKEEPER, TopicPartition
from . import paths
from .assignors import STRATEGIES
from .brokers import RegisteredBrokers
from .offsets import GroupOffsets
from .reading import StreamReading
from .rebalancer import Rebalancer
from .settings import ZookeeperConsumerOptions, ZookeeperConsumerSettings
from .stream_engines import StreamOf
from .streams_consumer import StreamsConsumer
from .subscription import Subscription
from .zookeeper import ZooKeeper

_log = logging.getLogger("ottla_client")

_CHECK_SECONDS: Final = 5.0
"""The time for finding members of the group that coordinate through the brokers."""


class ZookeeperConsumer(StreamsConsumer):
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
        super().__init__(topics, settings)
        self._zookeeper = ZooKeeper(
            zookeeper_connect,
            settings.zookeeper_session_timeout_ms,
            settings.zookeeper_connection_timeout_ms,
        )
        self._registered = RegisteredBrokers(
            self._zookeeper, settings.security_protocol, self._zookeeper.connect
        )
        self._brokers: list[str] = []
        self._cluster: Cluster | None = None
        self._offsets: GroupOffsets | None = None
        self._reading: StreamReading | None = None
        self._rebalancer: Rebalancer | None = None
        self._following: asyncio.Task[None] | None = None
        self._committing: asyncio.Task[None] | None = None

    async def _connect(self) -> None:
        await self._zookeeper.open()
        deadline = Deadline(self._settings.default_api_timeout_ms / 1000)
        self._brokers = await self._registered.find(deadline)
        await self._check_group(deadline)
        self._offsets = await self._open_offsets(deadline)
        self._following = background(
            self._registered.follow(self._use_brokers), f"the broker list of consumer {self._consumer_id}"
        )

    def _use_brokers(self, servers: list[str]) -> None:
        """The brokers have moved, or there are others."""
        self._brokers = servers
        self._move_streams(servers)
        if self._cluster is not None:
            self._cluster.use_bootstrap(parse_servers(servers))

    async def _check_group(self, deadline: Deadline) -> None:
        """Raise GroupError while the group has consumers of another generation."""
        group_id = self._settings.group_id
        holder = await self._zookeeper.read(paths.coordinated(group_id))
        if holder is not None:
            broker = holder.decode(errors="replace")
            raise _held(
                group_id, f"consumers that registered with the coordinator of 2012 at broker {broker}"
            )
        options: dict[str, Any] = {
            name: getattr(self._settings, name) for name in ConnectionSettings.__dataclass_fields__
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
        if group.members and group.protocol_type != IN_ZOOKEEPER:
            raise _held(
                group_id,
                f"{len(group.members)} members of the {group.type or 'classic'} protocol, which coordinate through the"
                " brokers",
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
            settings.default_api_timeout_ms / 1000,
            dual=settings.dual_commit_enabled,
        )

    async def _join(self, subscription: Subscription, count: int, stream_of: StreamOf) -> None:
        settings = self._settings
        assert self._offsets is not None, "the consumer is connected"
        await self._make_streams(self._brokers, count)
        self._move_streams(self._brokers)  # they may have moved meanwhile
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
            self._committing = background(
                self._commit_regularly(), f"the auto-commit of consumer {self._consumer_id}"
            )

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
        await self._offsets.commit(self._reading.handed_out)

    async def _leave(self, processed: bool, timeout: float | None, stack: AsyncExitStack) -> None:
        tasks = [each for each in (self._committing, self._following) if each is not None]
        for each in tasks:
            each.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        # In this order: leave the group, stop reading, disconnect. The stack does the last first.
        stack.push_async_callback(self._zookeeper.close)
        if self._cluster is not None:
            stack.push_async_callback(self._cluster.close)
        self._stop_reading(stack)
        if self._rebalancer is None or self._reading is None:
            return
        self._reading.all_processed = processed
        try:
            async with asyncio.timeout(timeout):
                await self._rebalancer.close()
        except (ClientError, TimeoutError) as error:
            _log.warning("consumer %s could not leave its group: %s", self._consumer_id, error or "no time")


def _held(group_id: str, by: str) -> GroupError:
    return GroupError(
        ErrorCode.NON_EMPTY_GROUP,
        f"group {group_id!r} is held by {by}; close them, or use another group_id (NON_EMPTY_GROUP)",
    )
