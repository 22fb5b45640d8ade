"""The context that a handler gets with a request."""

from __future__ import annotations

from typing import Final

from ottla_broker.network.service import ClientConnection
from ottla_broker.replica.partition import Partition
from ottla_broker.requests.api import Rules
from ottla_broker.requests.services import Services
from ottla_broker.security.authorization import DENIED
from ottla_protocol.acls import CLUSTER_NAME, AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError

NOT_ASKED: Final = -0x8000_0000
"""Instead of authorized operations, for a client that hasn't asked for them."""

_TOPIC: Final = AclResource.TOPIC


THROTTLED: Final = "The throttling quota has been exceeded."


class RequestContext:
    """One request's client, version, and the services that its handler may use.

    Attributes:
        rules: the operations that the API needs and that are checked; see :mod:`ottla_broker.security.authorization`.
        busy_seconds: how long the event loop has worked for the request, if quotas are measured, and no quota has
            counted it yet; ``busy_since``: since when it does, besides, on the monotonic clock, or 0.
        exempt: whether no quota applies, as to requests between brokers.
        throttle_ms: what the handler wants the client to wait after the response.
        in_turns: whether it takes turns with everything else; ``waited``: for how many seconds it has waited for what
            its handler waits for.
    """

    __slots__ = (
        "busy_seconds",
        "busy_since",
        "client_id",
        "connection",
        "correlation_id",
        "exempt",
        "in_turns",
        "rules",
        "services",
        "throttle_ms",
        "version",
        "waited",
    )

    def __init__(
        self,
        services: Services,
        rules: Rules,
        version: int,
        client_id: str | None,
        connection: ClientConnection,
        correlation_id: int,
    ) -> None:
        self.services = services
        self.rules = rules
        self.version = version
        self.client_id = client_id
        self.connection = connection
        self.correlation_id = correlation_id
        self.busy_seconds = self.busy_since = 0.0
        self.exempt = self.in_turns = False
        self.waited = 0.0
        self.throttle_ms = 0

    def begin_work(self) -> None:
        """From now on the event loop works for the request; for turns after the first one."""
        if self.services.quotas.enabled:
            self.busy_since = self.services.clock.monotonic()

    def end_work(self) -> None:
        """Until now it did."""
        if self.busy_since:
            self.busy_seconds += self.services.clock.monotonic() - self.busy_since
            self.busy_since = 0.0

    def authorize(self, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do this API's operation on the resource called ``name``."""
        operation = self.rules[resource]
        return operation is None or self.services.authorizer.authorize(
            self.connection, operation, resource, name
        )

    def shows(self, resource: AclResource, name: str) -> bool:
        """As :meth:`authorize`, for a resource that the client hasn't named: its absence is no denial."""
        operation = self.rules[resource]
        return operation is None or self.services.authorizer.authorize(
            self.connection, operation, resource, name, explicit=False
        )

    def may(self, operation: AclOperation, resource: AclResource, name: str = CLUSTER_NAME) -> bool:
        """Whether the client may do another operation than those that the API ``needs``."""
        authorizer = self.services.authorizer
        return operation in authorizer.open_operations or authorizer.authorize(
            self.connection, operation, resource, name, explicit=False
        )

    def operations(self, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """The operations that the client may do to a resource, as a bit field (KIP-430)."""
        return self.services.authorizer.operations(self.connection, resource, name)

    def accepts_mutation(self, partitions: int, *, strict_since: int) -> bool:
        """Whether the client's quota lets it create or delete so many partitions now (KIP-599).

        Versions before ``strict_since`` can't be refused: their clients wait after the response instead.
        """
        services = self.services
        if not services.quotas.enabled:
            return True
        quota = services.quotas.mutations(self.connection.principal.name, self.client_id or "")
        if quota is None:
            return True
        now_ms = int(services.clock.monotonic() * 1000)
        accepted = quota.accept(partitions, now_ms, strict=self.version >= strict_since)
        self.throttle_ms = max(self.throttle_ms, quota.throttle_ms)
        return accepted

    def check(self, resource: AclResource, name: str = CLUSTER_NAME) -> None:
        """Raise KafkaError, e.g. TOPIC_AUTHORIZATION_FAILED, unless :meth:`authorize` allows it."""
        if not self.authorize(resource, name):
            raise KafkaError(DENIED[resource])

    def checked_replica(self, replica_id: int) -> int:
        """The id of the broker that asks; -1 (a consumer) for a client that names one, as kafka-python 3.1 does."""
        return -1 if replica_id >= 0 and not self.authorize(AclResource.CLUSTER) else replica_id

    def partition(self, topic: str, index: int, replica_id: int = -1) -> Partition:
        """The partition, for a client that may use its topic, or for the broker ``replica_id``.

        Raises:
            KafkaError: TOPIC_AUTHORIZATION_FAILED, or as :meth:`find_partition`.
        """
        if replica_id >= 0:
            if not self.authorize(AclResource.CLUSTER):
                raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        elif self.rules[_TOPIC] is not None:
            self.check(_TOPIC, topic)
        return self.services.replicas.partition(topic, index) or self.find_partition(topic, index)

    def find_partition(self, topic: str, index: int) -> Partition:
        """The partition, if this broker has it.

        Raises:
            KafkaError: NOT_LEADER_OR_FOLLOWER if only other brokers have it, or this one doesn't know yet;
                UNKNOWN_TOPIC_OR_PARTITION if it doesn't exist.
        """
        services = self.services
        partition = services.replicas.partition(topic, index)
        if partition is not None:
            return partition
        info = services.metadata.topic(topic)
        if not services.knows_cluster or (info is not None and index in info.partitions):
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def cluster_operations(ctx: RequestContext, asked: bool) -> int:
    """The operations that the client may do to the cluster; none unless it may describe it."""
    if not asked:
        return NOT_ASKED
    return ctx.operations(AclResource.CLUSTER) if ctx.may(AclOperation.DESCRIBE, AclResource.CLUSTER) else 0


def client_timeout(timeout_ms: int) -> float:
    """Seconds that a client waits for an answer: at least one, so that a request with no patience is still tried."""
    return max(1.0, timeout_ms / 1000)
