"""The parts of the broker that handlers may use."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla_broker.fetch.conversions import Conversions
from ottla_broker.requests.turns import Turns

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Awaitable, Callable, Mapping

    from ottla_broker.api_parts.client_telemetry import ClientTelemetry
    from ottla_broker.api_parts.share_services import ShareServices
    from ottla_broker.clock import Clock
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.acls import Acls
    from ottla_broker.controller.api import BrokerRequests, Controller
    from ottla_broker.controller.client_quotas import QuotaAdmin
    from ottla_broker.controller.delegation_tokens import DelegationTokens
    from ottla_broker.controller.features import FeatureAdmin
    from ottla_broker.coordinator.group.coordinator import GroupCoordinator
    from ottla_broker.coordinator.push.listing import CoordinatedGroups
    from ottla_broker.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla_broker.coordinator.zookeeper_groups import ZooKeeperGroups
    from ottla_broker.coordinator.zookeeper_offsets import ZooKeeperOffsets
    from ottla_broker.log.manager import LogManager
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.metadata.client_quotas import ClientQuotas
    from ottla_broker.metadata.scram_credentials import ScramCredentials
    from ottla_broker.replica.fetch_session import FetchSessions
    from ottla_broker.replica.manager import ReplicaManager
    from ottla_broker.replica.transaction_verifier import TransactionVerifier
    from ottla_broker.replica.txn_markers import TxnMarkers
    from ottla_broker.requests.api import Served
    from ottla_broker.security.authorization import Authorizer
    from ottla_protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse
    from ottla_protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse
    from ottla_protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


class ControllerRequests(Protocol):
    """Carries out the requests of the cluster's controller."""

    async def leader_and_isr(self, request: LeaderAndIsrRequest, version: int) -> LeaderAndIsrResponse: ...

    async def stop_replica(self, request: StopReplicaRequest, version: int) -> StopReplicaResponse: ...

    async def update_metadata(
        self, request: UpdateMetadataRequest, version: int
    ) -> UpdateMetadataResponse: ...


class Member(Protocol):
    """This broker as a member of a cluster."""

    @property
    def controller(self) -> BrokerRequests: ...

    @property
    def controller_requests(self) -> ControllerRequests: ...


@dataclass(slots=True)
class Services:
    """Owned by the loop thread.

    Attributes:
        served: the APIs that this broker serves, by key.
        find_groups, find_transactions, find_shares: the coordinators, which are built on their first use.
        load_coordinators: loads those of transactions, and with True those of groups, without holding the event loop
            for long; None if they were built with the start.
        zookeeper_offsets: of consumers that coordinate in ZooKeeper; in the embedded store without one.
        joined: in a cluster, set once the controller has described it to this broker.
        scram: users' credentials.
        is_controller: whether this broker decides for its cluster now.
        features: of the cluster.
        conversions: between the formats of records, for old clients.
        turns: of long requests on the event loop.
        quotas: of clients; ``quota_admin`` changes them.
        tokens: delegation tokens; None without ``delegation.token.secret.key``.
        acls: the access control lists; None if nothing decides by them.
        telemetry: the metrics that clients push; None: that isn't served.
        cluster_member: None for a broker that stands alone, which doesn't serve the APIs that use it.
        coordinated: the groups of the 2012 coordinator; None without ``coordinator.listener``.
        zookeeper_groups: those whose consumers coordinate in ZooKeeper.
    """

    config: BrokerConfig
    clock: Clock
    served: Mapping[int, Served]
    authorizer: Authorizer
    metadata: MetadataCache
    controller: Controller
    replicas: ReplicaManager
    find_groups: Callable[[], GroupCoordinator]
    find_transactions: Callable[[], TransactionCoordinator]
    zookeeper_offsets: ZooKeeperOffsets
    logs: LogManager
    fetch_sessions: FetchSessions
    txn_markers: TxnMarkers
    quotas: ClientQuotas
    quota_admin: QuotaAdmin
    scram: ScramCredentials
    is_controller: Callable[[], bool]
    features: FeatureAdmin
    conversions: Conversions = field(default_factory=Conversions)
    turns: Turns = field(default_factory=Turns)
    transaction_verifier: TransactionVerifier | None = None
    joined: asyncio.Event | None = None
    acls: Acls | None = None
    tokens: DelegationTokens | None = None
    cluster_member: Member | None = None
    find_shares: Callable[[], ShareServices | None] = lambda: None
    load_coordinators: Callable[[bool], Awaitable[None]] | None = None
    telemetry: ClientTelemetry | None = None
    coordinated: Callable[[], CoordinatedGroups | None] = lambda: None
    zookeeper_groups: Callable[[], ZooKeeperGroups | None] = lambda: None

    @property
    def groups(self) -> GroupCoordinator:
        return self.find_groups()

    @property
    def transactions(self) -> TransactionCoordinator:
        return self.find_transactions()

    @property
    def shares(self) -> ShareServices | None:
        """The services for share groups' records; None: they aren't served."""
        return self.find_shares()

    @property
    def knows_cluster(self) -> bool:
        """Whether this broker knows the brokers and topics; in a cluster it starts without."""
        return self.joined is None or self.joined.is_set()

    @property
    def member(self) -> Member:
        """This broker as a member of its cluster."""
        assert self.cluster_member is not None
        return self.cluster_member
