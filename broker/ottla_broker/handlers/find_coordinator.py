"""FindCoordinator: the broker that coordinates a group or a transactional id.

Version 1 can ask for transaction coordinators, 3 is flexible, 4 asks for several keys (KIP-699), 6 for share groups.
The first request creates the coordinators' topic and is answered once it exists. Only brokers may ask for the
coordinator of a share partition, whose key is ``group:topic id:partition``.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

from ottla_broker.events import get_logger
from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC, SHARE_STATE_TOPIC, TRANSACTION_TOPIC
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, DESCRIBE, GROUP, TRANSACTIONAL_ID, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_broker.requests.services import Services
from ottla_broker.security.authorization import DENIED
from ottla_broker.store.keys import decode_uuid
from ottla_protocol.acls import CLUSTER_NAME, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

API = Api(
    10,
    (0, 6),
    coordinated=True,
    # The cluster for share coordinators, which brokers ask for.
    needs={GROUP: DESCRIBE, TRANSACTIONAL_ID: DESCRIBE, CLUSTER: CLUSTER_ACTION},
    describes_cluster=True,
)

_log = get_logger()

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2
_SHARE_SINCE: Final = 6
_MOST_ASKED: Final = 100
"""Of so many keys one has to be the client's to have the coordinators' topic created."""


class _Kind(NamedTuple):
    resource: AclResource
    topic: str
    partition_for: Callable[[Services, str], int]


def _share_coordinator(services: Services, key: str) -> int:
    """The partition of ``__share_group_state`` for a share partition's key. Raises ValueError for another one."""
    group_id, topic_id, partition = key.rsplit(":", 2)
    decode_uuid(topic_id)
    if not group_id or not (partition.isascii() and partition.isdecimal()):
        raise ValueError(key)
    assert services.shares is not None
    return services.shares.coordinator.partition_of(key)


_KINDS: Final = {
    _GROUP: _Kind(AclResource.GROUP, OFFSETS_TOPIC, lambda services, key: services.groups.partition_for(key)),
    _TRANSACTION: _Kind(
        AclResource.TRANSACTIONAL_ID,
        TRANSACTION_TOPIC,
        lambda services, key: services.transactions.partition_for(key),
    ),
    _SHARE: _Kind(AclResource.CLUSTER, SHARE_STATE_TOPIC, _share_coordinator),
}


def _kind(ctx: RequestContext, key_type: int) -> _Kind | None:
    """Return where the coordinators are; None: there are none of this type."""
    if key_type == _SHARE and (ctx.version < _SHARE_SINCE or ctx.services.shares is None):
        return None
    return _KINDS.get(key_type)


def _may_ask(ctx: RequestContext, kind: _Kind, key: str) -> bool:
    return ctx.authorize(kind.resource, CLUSTER_NAME if kind.resource is AclResource.CLUSTER else key)


async def handle(ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
    keys = list(dict.fromkeys(request.coordinator_keys)) if ctx.version >= 4 else [request.key]
    kind = _kind(ctx, request.key_type)
    if (
        kind is not None
        and ctx.services.metadata.topic(kind.topic) is None
        and any(_may_ask(ctx, kind, key) for key in keys[:_MOST_ASKED])
    ):
        try:
            await in_task(ctx.services.controller.ensure_topic(kind.topic))
        except KafkaError as error:
            _log.error("topic not made", topic=kind.topic, error=error.code.name, reason=error.message)
            return _answer(ctx, [_failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in keys])
    found = []
    for key in keys:
        found.append(_find(ctx, request.key_type, key))
        await pause(1)
    return _answer(ctx, found)


def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    kind = _kind(ctx, key_type)
    if kind is None:
        if key_type == _SHARE and ctx.version >= _SHARE_SINCE:
            return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
        return _failed(key, ErrorCode.INVALID_REQUEST, "unknown coordinator type")
    if not _may_ask(ctx, kind, key):
        return _failed(key, DENIED[kind.resource])
    metadata = ctx.services.metadata
    topic = metadata.client_topic(kind.topic)
    if topic is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    try:
        partition = kind.partition_for(ctx.services, key)
    except ValueError:
        return _failed(key, ErrorCode.INVALID_REQUEST, f"{key} is not group:topic id:partition")
    broker = metadata.brokers.get(topic.leaders.get(partition, NO_LEADER))
    if broker is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    host, port = broker.listeners.get(ctx.connection.listener, (broker.host, broker.port))
    return Coordinator(key=key, node_id=broker.id, host=host, port=port, error_message="")


def _failed(key: str, code: ErrorCode, message: str = "") -> Coordinator:
    return Coordinator(key=key, node_id=-1, port=-1, error_code=code, error_message=message)


def _answer(ctx: RequestContext, found: list[Coordinator]) -> FindCoordinatorResponse:
    if ctx.version >= 4:
        return FindCoordinatorResponse(coordinators=found)
    one = found[0]
    return FindCoordinatorResponse(
        error_code=one.error_code,
        # Kafka's message is NONE if there is no error.
        error_message=one.error_message or ErrorCode(one.error_code).name,
        node_id=one.node_id,
        host=one.host,
        port=one.port,
    )
