"""Metadata: brokers, topics and the leaders of partitions.

Null asks for all topics, in version 0 an empty list. A missing topic is created if both the request and
auto.create.topics.enable allow it, and the response already has it; Kafka answers LEADER_NOT_AVAILABLE first. Topic ids
are returned from version 10 and accepted from 12; a request with ids ignores names, as in Kafka.

The partitions of a topic are described once for all requests, so that asking for ten thousand of them costs only their
encoding.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from copy import copy
from functools import partial
from typing import Final, TypeVar

from ottla_broker.controller.api import ZERO_ID
from ottla_broker.log.names import is_topic_name
from ottla_broker.metadata.cache import ClientTopic
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_broker.requests.api import CLUSTER, CREATE, DESCRIBE, LISTS, TOPIC, Api
from ottla_broker.requests.context import NOT_ASKED, RequestContext, cluster_operations
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import metadata as wire

# CREATE is for automatic topic creation, for which that on the topic is enough.
API = Api(3, (0, 12), needs={TOPIC: DESCRIBE, CLUSTER: CREATE}, answer=LISTS, describes_cluster=True)

T = TypeVar("T")

MOST_CREATED: Final = 100
"""How many topics one request creates."""


async def handle(ctx: RequestContext, request: wire.MetadataRequest) -> wire.MetadataResponse:
    metadata = ctx.services.metadata
    metadata.check_brokers()
    wanted = request.topics
    if wanted is None or (ctx.version == 0 and not wanted):
        found = []
        for name in [info.name for info in metadata.topics()]:
            topic = metadata.client_topic(name) if ctx.shows(AclResource.TOPIC, name) else None
            if topic is not None:
                found.append(_topic(ctx, request, topic))
                # As many partitions are encoded.
                await pause(1 + len(topic.response.partitions) // 4)
            else:
                await pause(1)
        return _respond(ctx, request, found)
    if ctx.version < 12 and any(topic.name is None or topic.topic_id != ZERO_ID for topic in wanted):
        return _respond(ctx, request, [_refused(ctx, topic) for topic in wanted])
    ids = dict.fromkeys([topic.topic_id for topic in wanted if topic.topic_id != ZERO_ID])
    if ids:
        return _respond(ctx, request, (await _each(ids, partial(_by_id, ctx, request))))
    names = list(dict.fromkeys([topic.name for topic in wanted]))
    if request.allow_auto_topic_creation and ctx.services.config.auto_create_topics_enable:
        missing = []
        for wanted_name in names:
            await pause(1)
            if (
                wanted_name is not None
                and wanted_name not in metadata
                and is_topic_name(wanted_name)
                and ctx.authorize(AclResource.TOPIC, wanted_name)
            ):
                missing.append(wanted_name)
        if missing:
            allowed_names = await _creatable(ctx, missing)
            refused = dict.fromkeys(missing, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for name in allowed_names:
                del refused[name]
            # Clients ask again, and get the next ones.
            refused.update(dict.fromkeys(allowed_names[MOST_CREATED:], ErrorCode.LEADER_NOT_AVAILABLE))
            allowed_names = allowed_names[:MOST_CREATED]
            if allowed_names:
                await _create(ctx, allowed_names, refused)
            by_name = partial(_by_name, ctx, request, errors=refused)
            return _respond(ctx, request, await _each(names, by_name))
    return _respond(ctx, request, (await _each(names, partial(_by_name, ctx, request))))


async def _each(
    wanted: Iterable[T], describe: Callable[[T], wire.MetadataResponseTopic]
) -> list[wire.MetadataResponseTopic]:
    topics = []
    for each in wanted:
        topic = describe(each)
        topics.append(topic)
        await pause(1 + len(topic.partitions) // 4)
    return topics


async def _creatable(ctx: RequestContext, names: Sequence[str]) -> Sequence[str]:
    """The topics that the client may create, by a rule for the cluster or for the topic."""
    if ctx.may(AclOperation.CREATE, AclResource.CLUSTER):
        return names
    allowed = []
    for name in names:
        if ctx.may(AclOperation.CREATE, AclResource.TOPIC, name):
            allowed.append(name)
        await pause(1)
    return allowed


async def _create(ctx: RequestContext, names: Sequence[str], errors: dict[str, ErrorCode]) -> None:
    """Create topics; ``errors`` gets those of topics that can't be created."""
    for name in names:
        try:
            await in_task(ctx.services.controller.ensure_topic(name))
        except KafkaError as error:
            errors[name] = error.code


def _respond(
    ctx: RequestContext, request: wire.MetadataRequest, topics: list[wire.MetadataResponseTopic]
) -> wire.MetadataResponse:
    metadata, listener = ctx.services.metadata, ctx.connection.listener
    brokers = []
    known = {**metadata.departed, **metadata.brokers} if metadata.departed else metadata.brokers
    for broker in known.values():
        reached = broker.listeners.get(listener)
        if reached is not None:
            host, port = reached
            brokers.append(
                wire.MetadataResponseBroker(node_id=broker.id, host=host, port=port, rack=broker.rack)
            )
    return wire.MetadataResponse(
        brokers=brokers,
        cluster_id=metadata.cluster_id,
        controller_id=metadata.controller_id,
        topics=topics,
        cluster_authorized_operations=cluster_operations(ctx, request.include_cluster_authorized_operations),
    )


def _topic(
    ctx: RequestContext, request: wire.MetadataRequest, topic: ClientTopic
) -> wire.MetadataResponseTopic:
    response = topic.response
    if request.include_topic_authorized_operations:
        response = copy(response)
        response.topic_authorized_operations = ctx.operations(AclResource.TOPIC, topic.info.name)
    return response


def _by_name(
    ctx: RequestContext,
    request: wire.MetadataRequest,
    name: str | None,
    errors: dict[str, ErrorCode] | None = None,
) -> wire.MetadataResponseTopic:
    if name is None:
        return _failed(ctx, request, ErrorCode.INVALID_REQUEST, None)
    if not ctx.authorize(AclResource.TOPIC, name):
        return wire.MetadataResponseTopic(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED, name=name)
    topic = ctx.services.metadata.client_topic(name)
    if topic is not None:
        return _topic(ctx, request, topic)
    if not is_topic_name(name):
        return _failed(ctx, request, ErrorCode.INVALID_TOPIC_EXCEPTION, name)
    code = (errors or {}).get(name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        return wire.MetadataResponseTopic(error_code=code, name=name, is_internal=name in INTERNAL_TOPICS)
    return _failed(ctx, request, code, name)


def _by_id(ctx: RequestContext, request: wire.MetadataRequest, topic_id: bytes) -> wire.MetadataResponseTopic:
    info = ctx.services.metadata.topic_by_id(topic_id)
    if info is None:
        return wire.MetadataResponseTopic(error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=None, topic_id=topic_id)
    if not ctx.authorize(AclResource.TOPIC, info.name):
        # As in Kafka, an id isn't secret, but its name is.
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
        return wire.MetadataResponseTopic(error_code=code, name=None, topic_id=topic_id)
    return _by_name(ctx, request, info.name)


def _failed(
    ctx: RequestContext, request: wire.MetadataRequest, code: ErrorCode, name: str | None
) -> wire.MetadataResponseTopic:
    asked = request.include_topic_authorized_operations
    return wire.MetadataResponseTopic(
        error_code=code,
        name=name,
        is_internal=name in INTERNAL_TOPICS,
        topic_authorized_operations=ctx.operations(AclResource.TOPIC, name or "") if asked else NOT_ASKED,
    )


def _refused(ctx: RequestContext, topic: wire.MetadataRequestTopic) -> wire.MetadataResponseTopic:
    """Refuse a topic without a name, or with an id, before version 12."""
    return wire.MetadataResponseTopic(error_code=ErrorCode.INVALID_REQUEST, name=topic.name or "")
