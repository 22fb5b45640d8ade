"""Who may do what: the one place that decides it, and the table of what each API needs.

Access control isn't built yet, so everyone may do everything, with one exception: ``CLUSTER_ACTION``, which is what
brokers ask of each other, is allowed only on the listener that brokers use among themselves.

:data:`RULES` names the operation that an API needs on each type of resource (KIP-11, Kafka's ``KafkaApis``). An API
whose answer has a single error for the whole request is in :data:`GATES` too: the dispatcher refuses it before its
handler is called. The other handlers call :meth:`.context.RequestContext.authorize` for each topic or group.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import Final, NamedTuple

from ottla_broker.network.service import ClientConnection
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode


class AclOperation(IntEnum):
    """What can be done to a resource, by the codes of Kafka's ``AclOperation``."""

    READ = 3
    WRITE = 4
    CREATE = 5
    DELETE = 6
    ALTER = 7
    DESCRIBE = 8
    CLUSTER_ACTION = 9
    DESCRIBE_CONFIGS = 10
    ALTER_CONFIGS = 11
    IDEMPOTENT_WRITE = 12


class AclResource(IntEnum):
    """What operations are done to, by the codes of Kafka's ``ResourceType``."""

    TOPIC = 2
    GROUP = 3
    CLUSTER = 4
    TRANSACTIONAL_ID = 5


CLUSTER_NAME: Final = "kafka-cluster"
"""The name of the only resource of type ``CLUSTER``."""

DENIED: Final[Mapping[AclResource, ErrorCode]] = {
    AclResource.TOPIC: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    AclResource.GROUP: ErrorCode.GROUP_AUTHORIZATION_FAILED,
    AclResource.CLUSTER: ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    AclResource.TRANSACTIONAL_ID: ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
"""The error for an operation that isn't allowed."""

Rules = Mapping[AclResource, AclOperation]

_TOPIC, _GROUP, _CLUSTER = AclResource.TOPIC, AclResource.GROUP, AclResource.CLUSTER
_TRANSACTIONAL_ID = AclResource.TRANSACTIONAL_ID
_READ, _WRITE, _CREATE = AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE
_DELETE, _ALTER, _DESCRIBE = AclOperation.DELETE, AclOperation.ALTER, AclOperation.DESCRIBE
_CLUSTER_ACTION = AclOperation.CLUSTER_ACTION
_DESCRIBE_CONFIGS, _ALTER_CONFIGS = AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS

RULES: Final[Mapping[int, Rules]] = {
    ApiKey.PRODUCE: {_TOPIC: _WRITE},
    # Followers need the cluster, consumers the topics.
    ApiKey.FETCH: {_TOPIC: _READ, _CLUSTER: _CLUSTER_ACTION},
    ApiKey.LIST_OFFSETS: {_TOPIC: _DESCRIBE, _CLUSTER: _CLUSTER_ACTION},
    # CREATE is for topics that are created because a client asks for them.
    ApiKey.METADATA: {_TOPIC: _DESCRIBE, _CLUSTER: _CREATE},
    ApiKey.LEADER_AND_ISR: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.STOP_REPLICA: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.UPDATE_METADATA: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.CONTROLLED_SHUTDOWN: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.OFFSET_COMMIT: {_GROUP: _READ, _TOPIC: _READ},
    ApiKey.OFFSET_FETCH: {_GROUP: _DESCRIBE, _TOPIC: _DESCRIBE},
    ApiKey.FIND_COORDINATOR: {_GROUP: _DESCRIBE, _TRANSACTIONAL_ID: _DESCRIBE},
    ApiKey.JOIN_GROUP: {_GROUP: _READ},
    ApiKey.HEARTBEAT: {_GROUP: _READ},
    ApiKey.LEAVE_GROUP: {_GROUP: _READ},
    ApiKey.SYNC_GROUP: {_GROUP: _READ},
    ApiKey.DESCRIBE_GROUPS: {_GROUP: _DESCRIBE},
    ApiKey.LIST_GROUPS: {_GROUP: _DESCRIBE},
    # Every client may ask what is served, and where the brokers are.
    ApiKey.API_VERSIONS: {},
    ApiKey.DESCRIBE_CLUSTER: {},
    ApiKey.CREATE_TOPICS: {_TOPIC: _CREATE},
    ApiKey.DELETE_TOPICS: {_TOPIC: _DELETE},
    ApiKey.DELETE_RECORDS: {_TOPIC: _DELETE},
    ApiKey.INIT_PRODUCER_ID: {_CLUSTER: AclOperation.IDEMPOTENT_WRITE},
    ApiKey.OFFSET_FOR_LEADER_EPOCH: {_TOPIC: _DESCRIBE, _CLUSTER: _CLUSTER_ACTION},
    ApiKey.DESCRIBE_ACLS: {_CLUSTER: _DESCRIBE},
    ApiKey.CREATE_ACLS: {_CLUSTER: _ALTER},
    ApiKey.DELETE_ACLS: {_CLUSTER: _ALTER},
    ApiKey.DESCRIBE_CONFIGS: {_TOPIC: _DESCRIBE_CONFIGS, _CLUSTER: _DESCRIBE_CONFIGS},
    ApiKey.ALTER_CONFIGS: {_TOPIC: _ALTER_CONFIGS, _CLUSTER: _ALTER_CONFIGS},
    ApiKey.ALTER_REPLICA_LOG_DIRS: {_CLUSTER: _ALTER},
    ApiKey.DESCRIBE_LOG_DIRS: {_CLUSTER: _DESCRIBE},
    ApiKey.CREATE_PARTITIONS: {_TOPIC: _ALTER},
    ApiKey.DELETE_GROUPS: {_GROUP: _DELETE},
    ApiKey.ELECT_LEADERS: {_CLUSTER: _ALTER},
    ApiKey.INCREMENTAL_ALTER_CONFIGS: {_TOPIC: _ALTER_CONFIGS, _CLUSTER: _ALTER_CONFIGS},
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: {_CLUSTER: _ALTER},
    ApiKey.LIST_PARTITION_REASSIGNMENTS: {_CLUSTER: _DESCRIBE},
    ApiKey.OFFSET_DELETE: {_GROUP: _DELETE, _TOPIC: _READ},
    ApiKey.DESCRIBE_CLIENT_QUOTAS: {_CLUSTER: _DESCRIBE_CONFIGS},
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: {_CLUSTER: _DESCRIBE},
    ApiKey.ALTER_PARTITION: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.DESCRIBE_PRODUCERS: {_TOPIC: _READ},
    ApiKey.ALLOCATE_PRODUCER_IDS: {_CLUSTER: _CLUSTER_ACTION},
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: {_CLUSTER: _DESCRIBE_CONFIGS},
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: {_TOPIC: _DESCRIBE},
}
"""By API: the operation it needs on each type of resource that it names."""


class Gate(NamedTuple):
    """What a request as a whole needs. ``name_field`` of the request names the resource; the cluster has one name."""

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
    ApiKey.INIT_PRODUCER_ID: _CLUSTER_GATE,
    ApiKey.DESCRIBE_ACLS: _CLUSTER_GATE,
    ApiKey.DESCRIBE_LOG_DIRS: _CLUSTER_GATE,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: _CLUSTER_GATE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: _CLUSTER_GATE,
    ApiKey.OFFSET_DELETE: _GROUP_GATE,
    ApiKey.DESCRIBE_CLIENT_QUOTAS: _CLUSTER_GATE,
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: _CLUSTER_GATE,
    ApiKey.ALTER_PARTITION: _CLUSTER_GATE,
    ApiKey.ALLOCATE_PRODUCER_IDS: _CLUSTER_GATE,
    ApiKey.LIST_CLIENT_METRICS_RESOURCES: _CLUSTER_GATE,
}
"""By API: what the dispatcher checks. The answer's ``error_code`` says that it wasn't allowed."""


class Authorizer:
    """Decides every request. Access control lists, once there are any, are looked up here (Kafka's ``Authorizer``)."""

    def __init__(self, inter_broker_listener: str | None) -> None:
        """``None`` for a broker that has no others to listen to."""
        self._inter_broker_listener = inter_broker_listener

    def authorize(
        self, client: ClientConnection, operation: AclOperation, resource: AclResource, name: str
    ) -> bool:
        """Whether a client may do ``operation`` to the resource called ``name``."""
        return operation is not _CLUSTER_ACTION or client.listener == self._inter_broker_listener
