"""FindCoordinator (key 10), versions 0-6: the broker that coordinates a group.

Version 1 can ask for transaction coordinators, 3 is flexible, 4 asks for several keys (KIP-699), 6 for share groups.
The first request creates ``__consumer_offsets`` and is answered once it exists.

Transactions and share groups aren't built yet. A transactional id gets TRANSACTIONAL_ID_AUTHORIZATION_FAILED and a
message: the only error after which all clients give up at once.
"""

from __future__ import annotations

from collections.abc import Awaitable, Sequence

from ottla_broker.events import get_logger
from ottla_broker.handlers.authorization import AclResource
from ottla_broker.handlers.context import RequestContext
from ottla_broker.metadata.cache import NO_LEADER
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

_log = get_logger()

_GROUP, _TRANSACTION, _SHARE = 0, 1, 2


def handle(
    ctx: RequestContext, request: FindCoordinatorRequest
) -> FindCoordinatorResponse | Awaitable[FindCoordinatorResponse]:
    keys = request.coordinator_keys if ctx.version >= 4 else [request.key]
    allowed = any(ctx.authorize(AclResource.GROUP, key) for key in keys)
    if request.key_type == _GROUP and allowed and ctx.services.metadata.topic(OFFSETS_TOPIC) is None:
        return _make_topic_first(ctx, keys)
    return _answer(ctx, [_find(ctx, request.key_type, key) for key in keys])


async def _make_topic_first(ctx: RequestContext, keys: Sequence[str]) -> FindCoordinatorResponse:
    try:
        await ctx.services.controller.ensure_topic(OFFSETS_TOPIC)
    except KafkaError as error:
        _log.error("topic not made", topic=OFFSETS_TOPIC, error=error.code.name, reason=error.message)
        return _answer(ctx, [_failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE) for key in keys])
    return _answer(ctx, [_find(ctx, _GROUP, key) for key in keys])


def _find(ctx: RequestContext, key_type: int, key: str) -> Coordinator:
    if key_type == _TRANSACTION:
        message = "this broker does not serve transactions; produce without a transactional id"
        return _failed(key, ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, message)
    if key_type == _GROUP and not ctx.authorize(AclResource.GROUP, key):
        return _failed(key, ErrorCode.GROUP_AUTHORIZATION_FAILED)
    if key_type == _SHARE and ctx.version >= 6:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    if key_type != _GROUP:
        return _failed(key, ErrorCode.INVALID_REQUEST, "unknown coordinator type")
    metadata = ctx.services.metadata
    topic = metadata.client_topic(OFFSETS_TOPIC)
    if topic is None:
        return _failed(key, ErrorCode.COORDINATOR_NOT_AVAILABLE)
    broker = metadata.brokers.get(topic.leaders.get(ctx.services.groups.partition_for(key), NO_LEADER))
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
