"""The parts of a running broker that collectors read."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from ottla_broker.metrics.exposition import Exposition

if TYPE_CHECKING:
    from ottla_broker.api_parts.client_telemetry import ClientTelemetry
    from ottla_broker.background import Background
    from ottla_broker.clock import Clock
    from ottla_broker.cluster.member import ClusterMember
    from ottla_broker.config import BrokerConfig
    from ottla_broker.coordinator.group.coordinator import GroupCoordinator
    from ottla_broker.coordinator.share.share_partitions import SharePartitions
    from ottla_broker.coordinator.transaction.coordinator import TransactionCoordinator
    from ottla_broker.counters import Timings
    from ottla_broker.log.cleaner.service import LogCleaner
    from ottla_broker.log.manager import LogManager
    from ottla_broker.metadata.cache import MetadataCache
    from ottla_broker.metrics.lag_history import LagHistory
    from ottla_broker.network.acceptor import Acceptor
    from ottla_broker.network.connection_quotas import ConnectionQuotas
    from ottla_broker.network.request_memory import RequestMemory
    from ottla_broker.push_coordination import PushCoordination
    from ottla_broker.replica.fetch_session import FetchSessions
    from ottla_broker.replica.manager import ReplicaManager
    from ottla_broker.requests.dispatch import Dispatcher


class Logins(Protocol):
    """A part that authenticates clients of a listener."""

    succeeded: int
    failed: int


Collector = Callable[[Exposition], Iterator[None]]
"""Adds metrics. It yields wherever the event loop may have its turn, at least every millisecond or so; what it reads
may have changed when it goes on."""


@dataclass(slots=True)
class Sources:
    """Owned by the loop thread.

    Attributes:
        cpu_seconds: the processor time that the loop's thread has used.
        memories: the bounds on requests' buffers, by listener.
        member: None for a broker that stands alone.
        store_timings: how long writes to the embedded store take; None in a cluster.
        cleaner: None if it is switched off.
        lag_history: None while groups' lag is not sampled.
        telemetry: the metrics that clients push; None: that isn't served.
        logins: authentications, by listener: by SASL, or else by TLS.
        push: the coordinator designed in 2012, if it is served.
        shares: what share groups have of partitions led here; None while there are none.
    """

    config: BrokerConfig
    clock: Clock
    cpu_seconds: Callable[[], float]
    background: Background
    metadata: MetadataCache
    logs: LogManager
    replicas: ReplicaManager
    groups: GroupCoordinator
    transactions: TransactionCoordinator
    dispatcher: Dispatcher
    acceptors: Sequence[Acceptor]
    memories: Sequence[RequestMemory]
    quotas: ConnectionQuotas
    fetch_sessions: FetchSessions
    cleaner: LogCleaner | None
    member: ClusterMember | None
    store_timings: Timings | None = None
    lag_history: Callable[[], LagHistory | None] = lambda: None
    telemetry: ClientTelemetry | None = None
    logins: Mapping[str, Logins] = field(default_factory=dict)
    push: PushCoordination | None = None
    shares: Callable[[], SharePartitions | None] = lambda: None
