"""Maps API keys to message classes, importing each API's module on first use."""

from __future__ import annotations

from importlib import import_module

from .api_keys import ApiKey
from .errors import ProtocolError
from .schema import Message

DECLARED: frozenset[ApiKey] = frozenset(
    {
        ApiKey.PRODUCE,
        ApiKey.FETCH,
        ApiKey.LIST_OFFSETS,
        ApiKey.METADATA,
        ApiKey.LEADER_AND_ISR,
        ApiKey.STOP_REPLICA,
        ApiKey.UPDATE_METADATA,
        ApiKey.CONTROLLED_SHUTDOWN,
        ApiKey.OFFSET_COMMIT,
        ApiKey.OFFSET_FETCH,
        ApiKey.FIND_COORDINATOR,
        ApiKey.JOIN_GROUP,
        ApiKey.HEARTBEAT,
        ApiKey.LEAVE_GROUP,
        ApiKey.SYNC_GROUP,
        ApiKey.DESCRIBE_GROUPS,
        ApiKey.LIST_GROUPS,
        ApiKey.API_VERSIONS,
        ApiKey.CREATE_TOPICS,
        ApiKey.DELETE_TOPICS,
        ApiKey.DELETE_RECORDS,
        ApiKey.INIT_PRODUCER_ID,
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        ApiKey.DESCRIBE_ACLS,
        ApiKey.CREATE_ACLS,
        ApiKey.DELETE_ACLS,
        ApiKey.DESCRIBE_CONFIGS,
        ApiKey.ALTER_CONFIGS,
        ApiKey.ALTER_REPLICA_LOG_DIRS,
        ApiKey.DESCRIBE_LOG_DIRS,
        ApiKey.CREATE_PARTITIONS,
        ApiKey.DELETE_GROUPS,
        ApiKey.ELECT_LEADERS,
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        ApiKey.ALTER_PARTITION_REASSIGNMENTS,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        ApiKey.OFFSET_DELETE,
        ApiKey.DESCRIBE_CLIENT_QUOTAS,
        ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS,
        ApiKey.ALTER_PARTITION,
        ApiKey.DESCRIBE_CLUSTER,
        ApiKey.DESCRIBE_PRODUCERS,
        ApiKey.ALLOCATE_PRODUCER_IDS,
        ApiKey.CONSUMER_GROUP_DESCRIBE,
        ApiKey.LIST_CLIENT_METRICS_RESOURCES,
        ApiKey.DESCRIBE_TOPIC_PARTITIONS,
    }
)
"""The APIs that have a module in ``messages``; a broker may serve fewer."""

_requests: dict[int, type[Message]] = {}
_responses: dict[int, type[Message]] = {}


def request_class(api_key: int, version: int) -> type[Message]:
    """Return the request class of an API. Raises ProtocolError for an undeclared API or version."""
    cls = _requests.get(api_key)
    if cls is None:
        cls = _requests[api_key] = _load(api_key, "Request")
    first, last = cls.VERSIONS
    if not first <= version <= last:
        raise ProtocolError(f"{cls.__name__} has no version {version}")
    return cls


def response_class(api_key: int) -> type[Message]:
    """Return the response class of an API. Raises ProtocolError for an undeclared API."""
    cls = _responses.get(api_key)
    if cls is None:
        cls = _responses[api_key] = _load(api_key, "Response")
    return cls


def _load(api_key: int, kind: str) -> type[Message]:
    if api_key not in DECLARED:
        raise ProtocolError(f"no API has the key {api_key}")
    name = ApiKey(api_key).name
    module = import_module(f".messages.{name.lower()}", __package__)
    cls: type[Message] = getattr(module, "".join(map(str.capitalize, name.split("_"))) + kind)
    return cls
