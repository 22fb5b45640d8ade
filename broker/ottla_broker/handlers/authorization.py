"""Decides what a client may do, and lists what each API needs.

Without access control everything is allowed, except that ``CLUSTER_ACTION``, for requests between brokers, is allowed
only on the inter-broker listener. With ``authorizer.class.name``, :mod:`.acl_authorizer` decides by ACLs.

:data:`RULES` names the operation that an API needs on each type of resource (KIP-11, Kafka's ``KafkaApis``). An API
whose response has a single error for the whole request is also in :data:`GATES`: the dispatcher refuses the request
before its handler runs. Other handlers call :meth:`.context.RequestContext.authorize` for each topic or group.
:data:`ALSO` has the further operations that a handler asks for, by :meth:`.context.RequestContext.may`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from ottla_broker.handlers import BETWEEN_BROKERS
from ottla_broker.network.service import ClientConnection
from ottla_protocol.acls import CLUSTER_NAME, SUPPORTED, AclOperation, AclResource
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode

DENIED: Final[Mapping[AclResource, ErrorCode]] = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
    AclResource.DELEGATION_TOKEN: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
    AclResource.USER: ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED,
}
"""The error for an operation that isn't allowed."""

Rules = Mapping[AclResource, AclOperation | None]
"""The operation that an API needs on each type of resource; None needs no check."""

_TOPIC, _GROUP, _CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
_TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

RULES: Final[Mapping[int, Rules]] = {
    **{key: {_CLUSTER: _CLUSTER_ACTION} for key in BETWEEN_BROKERS},
    # The transactional id is for batches of transactions.
    ApiKey.PRODUCE: {_TOPIC: _WRITE, _TRANSACTIONAL_ID: _WRITE},
    # Followers need the cluster, consumers the topics.
    ApiKey.FETCH: {_TOPIC: _READ, _CLUSTER: _CLUSTER_ACTION},
    ApiKey.LIST_OFFSETS: {_TOPIC: _DESCRIBE, _CLUSTER: _CLUSTER_ACTION},
    # CREATE is for automatic topic creation.
    ApiKey.METADATA: {_TOPIC: _DESCRIBE, _CLUSTER: _CREATE},
    ApiKey.OFFSET_COMMIT: {_GROUP: _READ, _TOPIC: _READ},
    ApiKey.OFFSET_FETCH: {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE},
    # The cluster for share coordinators, which brokers ask for.
    ApiKey.FIND_COORDINATOR: {_GROUP: _DESCRIBE, _TRANSACTIONAL_ID: _DESCRIBE, _CLUSTER: _CLUSTER_ACTION},
    ApiKey.JOIN_GROUP: {_GROUP: _READ},
    ApiKey.HEARTBEAT: {_GROUP: _READ},
    ApiKey.LEAVE_GROUP: {_GROUP: _READ},
    ApiKey.SYNC_GROUP: {_GROUP: _READ},
    ApiKey.DESCRIBE_GROUPS: {_GROUP: _DESCRIBE},
    ApiKey.LIST_GROUPS: {_GROUP: _DESCRIBE},
    # Allowed for every client.
    ApiKey.API_VERSIONS: {},
    ApiKey.SASL_HANDSHAKE: {},
    ApiKey.SASL_AUTHENTICATE: {},
    ApiKey.DESCRIBE_CLUSTER: {},
    ApiKey.CREATE_TOPICS: {_TOPIC: _CREATE},
    ApiKey.DELETE_TOPICS: {_TOPIC: _DELETE},
    ApiKey.DELETE_RECORDS: {_TOPIC: _DELETE},
    # The cluster for idempotent producers, the transactional id for the others.
    ApiKey.INIT_PRODUCER_ID: {_CLUSTER: AclOperation.IDEMPOTENT_WRITE, _TRANSACTIONAL_ID: _WRITE},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {_TOPIC: _DESCRIBE, _CLUSTER: _CLUSTER_ACTION},
    # Clients need the transactional id and the topics, brokers the cluster.
    ApiKey.ADD_PARTITIONS_TO_TXN: {_TRANSACTIONAL_ID: _WRITE, _TOPIC: _WRITE, _CLUSTER: _CLUSTER_ACTION},
    ApiKey.ADD_OFFSETS_TO_TXN: {_TRANSACTIONAL_ID: _WRITE, _GROUP: _READ},
    ApiKey.END_TXN: {_TRANSACTIONAL_ID: _WRITE},
    ApiKey.TXN_OFFSET_COMMIT: {_TRANSACTIONAL_ID: _WRITE, _GROUP: _READ, _TOPIC: _READ},
    ApiKey.DESCRIBE_ACLS: {_CLUSTER: _DESCRIBE},
    ApiKey.CREATE_ACLS: {_CLUSTER: _ALTER},
    ApiKey.DELETE_ACLS: {_CLUSTER: _ALTER},
    ApiKey.DESCRIBE_CONFIGS: {
        _TOPIC: _DESCRIBE_CONFIGS,
        _GROUP: _DESCRIBE_CONFIGS,
        _CLUSTER: _DESCRIBE_CONFIGS,
    },
    ApiKey.ALTER_CONFIGS: {_TOPIC: _ALTER_CONFIGS, _GROUP: _ALTER_CONFIGS, _CLUSTER: _ALTER_CONFIGS},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {_CLUSTER: _ALTER},
    ApiKey.DESCRIBE_LOG_DIRS: {_CLUSTER: _DESCRIBE},
    ApiKey.CREATE_PARTITIONS: {_TOPIC: _ALTER},
    # For another user's token; everyone may have tokens of their own.
    ApiKey.CREATE_DELEGATION_TOKEN: {AclResource.USER: AclOperation.CREATE_TOKENS},
    # The token's owner and renewers decide.
    ApiKey.RENEW_DELEGATION_TOKEN: {},
    ApiKey.EXPIRE_DELEGATION_TOKEN: {},
    # For tokens of others.
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {AclResource.DELEGATION_TOKEN: _DESCRIBE},
    ApiKey.DELETE_GROUPS: {_GROUP: _DELETE},
    ApiKey.ELECT_LEADERS: {_CLUSTER: _ALTER},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {
        _TOPIC: _ALTER_CONFIGS,
        _GROUP: _ALTER_CONFIGS,
        _CLUSTER: _ALTER_CONFIGS,
    },
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {_CLUSTER: _ALTER},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {_CLUSTER: _DESCRIBE},
    ApiKey.OFFSET_DELETE: {_GROUP: _DELETE, _TOPIC: _READ},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {_CLUSTER: _DESCRIBE_CONFIGS},
    ApiKey.ALTER_CLIENT_QUOTAS: {_CLUSTER: _ALTER_CONFIGS},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {_CLUSTER: _DESCRIBE},
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: {_CLUSTER: _ALTER},
    ApiKey.UPDATE_FEATURES: {_CLUSTER: _ALTER},
    ApiKey.DESCRIBE_PRODUCERS: {_TOPIC: _READ},
    ApiKey.DESCRIBE_TRANSACTIONS: {_TRANSACTIONAL_ID: _DESCRIBE, _TOPIC: _DESCRIBE},
    ApiKey.LIST_TRANSACTIONS: {_TRANSACTIONAL_ID: _DESCRIBE},
    # Allowed for every client, as in Kafka: what a client may push is for the subscriptions to say.
    ApiKey.GET_TELEMETRY_SUBSCRIPTIONS: {},
    ApiKey.PUSH_TELEMETRY: {},
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: {_CLUSTER: _DESCRIBE_CONFIGS},
    ApiKey.CONSUMER_GROUP_HEARTBEAT: {_GROUP: _READ, _TOPIC: _DESCRIBE},
    ApiKey.CONSUMER_GROUP_DESCRIBE: {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {_TOPIC: _DESCRIBE},
    ApiKey.SHARE_GROUP_HEARTBEAT: {_GROUP: _READ, _TOPIC: _DESCRIBE},
    ApiKey.SHARE_GROUP_DESCRIBE: {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE},
    ApiKey.SHARE_FETCH: {_GROUP: _READ, _TOPIC: _READ},
    ApiKey.SHARE_ACKNOWLEDGE: {_GROUP: _READ, _TOPIC: _READ},
    ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS: {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE},
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: {_GROUP: _READ, _TOPIC: _READ},
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: {_GROUP: _DELETE, _TOPIC: _READ},
}
"""By API: the operation it needs on each type of resource."""

ALSO: Final[Mapping[int, Collection[tuple[AclResource, AclOperation]]]] = {
    # The topics of the coordinators are written by brokers.
    ApiKey.PRODUCE: {(_CLUSTER, _CLUSTER_ACTION)},
    # Creating a missing topic needs CREATE on the cluster or on the topic; DESCRIBE shows operations on the cluster.
    ApiKey.METADATA: {(_TOPIC, _CREATE), (_CLUSTER, _DESCRIBE)},
    # DESCRIBE on the cluster shows all groups.
    ApiKey.LIST_GROUPS: {(_CLUSTER, _DESCRIBE)},
    # For the authorized operations in the response.
    ApiKey.DESCRIBE_CLUSTER: {(_CLUSTER, _DESCRIBE)},
    # CREATE on the cluster is enough; DESCRIBE_CONFIGS shows the new topic's configs.
    ApiKey.CREATE_TOPICS: {(_CLUSTER, _CREATE), (_TOPIC, _DESCRIBE_CONFIGS)},
    # Without DESCRIBE, an id doesn't tell the name.
    ApiKey.DELETE_TOPICS: {(_TOPIC, _DESCRIBE)},
    # WRITE on any topic is enough for an idempotent producer (KIP-679).
    ApiKey.INIT_PRODUCER_ID: {(_TOPIC, _WRITE)},
    # ALTER is enough, for tools that abort a hanging transaction.
    ApiKey.WRITE_TXN_MARKERS: {(_CLUSTER, _ALTER)},
    # DESCRIBE_TOKENS on the owner is enough.
    ApiKey.DESCRIBE_DELEGATION_TOKEN: {(AclResource.USER, AclOperation.DESCRIBE_TOKENS)},
}
"""By API: other operations that its handler asks for."""


class Gate(NamedTuple):
    """The resource that a whole request needs, named by the request's ``name_field``; None for the cluster."""

    resource: AclResource
    name_field: str | None = None


_CLUSTER_GATE: Final = Gate(_CLUSTER)
_GROUP_GATE: Final = Gate(_GROUP, "group_id")

GATES: Final[Mapping[int, Gate]] = {
    ApiKey.LEADER_AND_ISR: _CLUSTER_GATE,
    ApiKey.STOP_REPLICA: _CLUSTER_GATE,
    ApiKey.UPDATE_METADATA: _CLUSTER_GATE,
    ApiKey.CONTROLLED_SHUTDOWN: _CLUSTER_GATE,
    ApiKey.JOIN_GROUP: _GROUP_GATE,
    ApiKey.HEARTBEAT: _GROUP_GATE,
    ApiKey.LEAVE_GROUP: _GROUP_GATE,
    ApiKey.SYNC_GROUP: _GROUP_GATE,
    ApiKey.END_TXN: Gate(_TRANSACTIONAL_ID, "transactional_id"),
    ApiKey.DESCRIBE_ACLS: _CLUSTER_GATE,
    ApiKey.DESCRIBE_LOG_DIRS: _CLUSTER_GATE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CLUSTER_GATE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CLUSTER_GATE,
    ApiKey.OFFSET_DELETE: _GROUP_GATE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: _GROUP_GATE,
    ApiKey.SHARE_GROUP_HEARTBEAT: _GROUP_GATE,
    ApiKey.ALTER_SHARE_GROUP_OFFSETS: _GROUP_GATE,
    ApiKey.DELETE_SHARE_GROUP_OFFSETS: _GROUP_GATE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _CLUSTER_GATE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CLUSTER_GATE,
    ApiKey.ALTER_PARTITION: _CLUSTER_GATE,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_GATE,
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: _CLUSTER_GATE,
}
"""By API: what the dispatcher checks. A refusal is the response's ``error_code``."""


class Authorizer:
    """Decides every operation (Kafka's ``Authorizer``); this one allows all but requests between brokers.

    Attributes:
        open_operations: allowed for every client on every resource, so that requests skip the check.
    """

    open_operations: Collection[AclOperation] = frozenset(AclOperation) - {_CLUSTER_ACTION}

    def __init__(self, inter_broker_listener: str | None) -> None:
        """``None``: this broker stands alone, and no other broker may send it requests."""
        self._inter_broker_listener = inter_broker_listener

    def is_brokers(self, client: ClientConnection) -> bool:
        """Whether a connection came by the listener of the other brokers."""
        return client.listener == self._inter_broker_listener

    def authorize(
        self,
        client: ClientConnection,
        operation: AclOperation,
        resource: AclResource,
        name: str,
        *,
        explicit: bool = True,
    ) -> bool:
        """Whether a client may do ``operation`` to the resource called ``name``.

        ``explicit``: the client has asked for this resource, so the decision is worth a line in the audit log.
        """
        return operation in self.open_operations or client.listener == self._inter_broker_listener

    def authorize_by_type(
        self, client: ClientConnection, operation: AclOperation, resource: AclResource
    ) -> bool:
        """Whether a client may do ``operation`` to some resource of this type."""
        return True

    def operations(self, client: ClientConnection, resource: AclResource, name: str = CLUSTER_NAME) -> int:
        """The operations that a client may do to a resource, as a bit field (KIP-430)."""
        return _ALL_BITS[resource]

    def checked(self, rules: Rules) -> Rules:
        """The rules without the operations that need no check."""
        return {type_: None if needed in self.open_operations else needed for type_, needed in rules.items()}


_ALL_BITS: Final = {
    resource: sum(1 << operation for operation in operations) for resource, operations in SUPPORTED.items()
}
