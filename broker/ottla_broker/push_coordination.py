"""``coordinator.listener``: the consumer coordinator of 2012, from its election to its connections."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

from ottla_broker.coordinator.push.coordinator import PushCoordinator, PushEnvironment, PushSettings
from ottla_broker.coordinator.push.directory import Directory
from ottla_broker.coordinator.push.elector import Elector
from ottla_broker.coordinator.push.listing import CoordinatedGroups
from ottla_broker.coordinator.push.rebalancer import RebalanceSettings
from ottla_broker.events import get_logger
from ottla_broker.network.acceptor import open_listener
from ottla_broker.network.push import MORE_CONNECTIONS, PushConnection, PushListener
from ottla_broker.tasks import Tasks
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.prometheus import parse_address
from ottla_protocol.push import (
    Broker,
    ClusterMetadataResponse,
    PingResponse,
    RegisterConsumerRequest,
    StartFetcherResponse,
    StopFetcherResponse,
)

if TYPE_CHECKING:
    import socket

    from ottla_broker.clock import Clock
    from ottla_broker.config import BrokerConfig
    from ottla_broker.coordinator.group.coordinator import GroupCoordinator
    from ottla_broker.coordinator.push.registry import Channel
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.network.connection_quotas import ConnectionQuotas
    from ottla_broker.security.authorization import Authorizer
    from ottla_broker.store.api import Store

_log = get_logger()


class PushCoordination:
    """Owned by the loop thread. :meth:`start`, and :meth:`close` at the end.

    Attributes:
        address: where consumers connect.
        coordinator: the coordinator; it has groups while this broker is elected.
        groups: its groups as ListGroups and DescribeGroups show them.
    """

    def __init__(
        self,
        config: BrokerConfig,
        clock: Clock,
        store: Store,
        metadata: MetadataCache,
        groups: GroupCoordinator,
        authorizer: Authorizer,
        sock: socket.socket,
        quotas: ConnectionQuotas,
        held_elsewhere: Callable[[str], Awaitable[str | None]] | None = None,
    ) -> None:
        """``sock`` is bound to ``coordinator.listener``. ``held_elsewhere``: what holds a group at another broker."""
        self.address = ("", 0)
        self._config = config
        self._clock = clock
        self._store = store
        self._metadata = metadata
        self._authorizer = authorizer
        self._sock = sock
        self._directory: Directory | None = None
        self._tasks = Tasks()
        # So that the coordinator's start waits for the end of its stop.
        self._changing = asyncio.Lock()
        self.coordinator = PushCoordinator(
            _settings(config),
            clock,
            store,
            PushEnvironment(
                self._brokers,
                groups.admission.holder,
                held_elsewhere or _nowhere,
                self._may_join,
                self._may_read,
                config.broker_id,
            ),
        )
        self.groups = CoordinatedGroups(self.coordinator)
        session_ms = config.zookeeper_session_timeout_ms
        self.elector = Elector(
            store, config.broker_id, clock, session_ms / 4000, self._elected, self._resigned
        )
        self.listener = PushListener(clock, self, config.coordinator_max_consumers + MORE_CONNECTIONS, quotas)

    async def start(self) -> None:
        """Accept consumers, and try to become the coordinator."""
        config = self._config
        shown = parse_address(config.coordinator_advertised_listener or config.coordinator_listener)
        assert shown is not None
        self.address = (shown[0], shown[1] or self._sock.getsockname()[1])
        self._directory = Directory(self._store, Broker(self._config.broker_id, *self.address), self._clock)
        self._directory.start()
        self.elector.start()
        await self.listener.start(self._sock, config.socket_listen_backlog_size)
        _log.info(
            "consumers of the 2012 coordinator are served", address=f"{self.address[0]}:{self.address[1]}"
        )

    async def close(self) -> None:
        """Store the offsets that consumers have reported, resign, and close all connections."""
        if self.elector.leading:
            await self.coordinator.store_offsets()
        await self.elector.close()
        await self._tasks.close()
        await self.coordinator.stop()
        await self.listener.close()
        if self._directory is not None:
            await self._directory.close()

    def _elected(self) -> None:
        self._tasks.start(self._begin())

    def _resigned(self, _: str) -> None:
        self._tasks.start(self._end())

    async def _begin(self) -> None:
        async with self._changing:
            if self.elector.leading:
                self.coordinator.start()

    async def _end(self) -> None:
        async with self._changing:
            await self.coordinator.stop()

    # What consumers ask: see PushService.

    def cluster_metadata(self) -> ClusterMetadataResponse:
        brokers = () if self._directory is None else self._directory.brokers
        coordinator_id = self.elector.coordinator_id
        error = (
            ErrorCode.NONE
            if any(each.id == coordinator_id for each in brokers)
            else ErrorCode.COORDINATOR_NOT_AVAILABLE
        )
        return ClusterMetadataResponse(int(error), -1 if error else coordinator_id, brokers)

    async def register(self, channel: PushConnection, request: RegisterConsumerRequest) -> None:
        if not self.elector.leading:
            raise KafkaError(
                ErrorCode.NOT_COORDINATOR,
                "this broker is not the coordinator; ask for the cluster's metadata",
            )
        await self.coordinator.register(channel, request)

    def registered(self, channel: PushConnection) -> None:
        self.coordinator.registered(channel)

    def handle(
        self, channel: PushConnection, response: PingResponse | StopFetcherResponse | StartFetcherResponse
    ) -> None:
        self.coordinator.handle(channel, response)

    def disconnected(self, channel: PushConnection) -> None:
        self.coordinator.disconnected(channel)

    # What the coordinator asks: see PushEnvironment.

    def _brokers(self) -> tuple[Broker, ...]:
        """The live brokers, by the first listener that any client can use."""
        endpoints = self._config.endpoints
        name = next((each.name for each in endpoints if each.protocol == "PLAINTEXT"), endpoints[0].name)
        return tuple(
            Broker(each.id, *each.listeners.get(name, (each.host, each.port)))
            for _, each in sorted(self._metadata.brokers.items())
        )

    def _may_join(self, channel: Channel, group_id: str) -> bool:
        return self._may(channel, AclResource.GROUP, group_id)

    def _may_read(self, channel: Channel, topic: str) -> bool:
        return self._may(channel, AclResource.TOPIC, topic)

    def _may(self, channel: Channel, resource: AclResource, name: str) -> bool:
        assert isinstance(channel, PushConnection)
        return AclOperation.READ in self._authorizer.open_operations or self._authorizer.authorize(
            channel, AclOperation.READ, resource, name
        )


async def _nowhere(_: str) -> None:
    """A broker that stands alone."""


def bind(config: BrokerConfig) -> socket.socket:
    """Bind ``coordinator.listener``. Raises ListenError."""
    address = parse_address(config.coordinator_listener)
    assert address is not None
    return open_listener(
        *address,
        config.socket_listen_backlog_size,
        key="coordinator.listener",
        advice="choose another for this broker",
    )


def _settings(config: BrokerConfig) -> PushSettings:
    return PushSettings(
        RebalanceSettings(
            config.coordinator_rebalance_threads,
            config.coordinator_rebalance_max_retries,
            config.coordinator_rebalance_backoff_ms / 1000,
        ),
        config.coordinator_min_session_timeout_ms,
        max(config.group_max_session_timeout_ms, config.coordinator_min_session_timeout_ms),
        config.coordinator_max_failed_pings,
        config.coordinator_offset_commit_interval_ms / 1000,
        config.coordinator_max_consumers,
    )
