"""DeleteTopics: by name, from version 6 also by id.

Topics are gone when the response is sent; their files follow after file.delete.delay.ms. Two entries for the same topic
are both refused, as by KRaft controllers.
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.controller.api import ZERO_ID, TopicToDelete
from ottla_broker.requests.api import DELETE, TOPIC, Api, MiB
from ottla_broker.requests.context import THROTTLED, RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import delete_topics as wire

# Without DESCRIBE, an id doesn't tell the name.
API = Api(20, (0, 6), needs={TOPIC: DELETE}, memory=4 * MiB)


async def handle(ctx: RequestContext, request: wire.DeleteTopicsRequest) -> wire.DeleteTopicsResponse:
    wanted = (
        request.topics
        if ctx.version >= 6
        else [wire.DeleteTopicState(name=name) for name in request.topic_names]
    )
    if not ctx.services.config.delete_topic_enable:
        code = ErrorCode.INVALID_REQUEST if ctx.version < 3 else ErrorCode.TOPIC_DELETION_DISABLED
        return wire.DeleteTopicsResponse(responses=[_failed(topic, code, None) for topic in wanted])
    counts = Counter(_meaning(ctx, topic) for topic in wanted)
    refused: list[wire.DeletableTopicResult] = []
    accepted: list[TopicToDelete] = []
    for topic in wanted:
        await pause(5)
        if (topic.name is None) == (topic.topic_id == ZERO_ID):
            what = "Neither topic name nor id were specified."
            if topic.name is not None:
                what = "Topic name and topic ID can not both be specified."
            refused.append(_failed(topic, ErrorCode.INVALID_REQUEST, what))
        elif counts[_meaning(ctx, topic)] > 1:
            refused.append(_failed(topic, ErrorCode.INVALID_REQUEST, "Duplicate topic."))
        elif isinstance(name := _meaning(ctx, topic), str) and not ctx.authorize(AclResource.TOPIC, name):
            # As in Kafka, an id isn't secret, but its name is.
            known = ctx.may(AclOperation.DESCRIBE, AclResource.TOPIC, name)
            shown = wire.DeleteTopicState(name=name, topic_id=topic.topic_id) if known else topic
            refused.append(_failed(shown, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None))
        elif not ctx.accepts_mutation(_partitions(ctx, topic), strict_since=5):
            refused.append(_failed(topic, ErrorCode.THROTTLING_QUOTA_EXCEEDED, THROTTLED))
        else:
            accepted.append(TopicToDelete(topic.name, topic.topic_id))
    outcomes = await in_task(ctx.services.controller.delete_topics(accepted))
    deleted = [
        wire.DeletableTopicResult(
            name=it.name, topic_id=it.topic_id, error_code=it.error, error_message=it.message
        )
        for it in outcomes
    ]
    return wire.DeleteTopicsResponse(responses=refused + deleted)


def _meaning(ctx: RequestContext, topic: wire.DeleteTopicState) -> str | bytes:
    """A key that is equal for two entries of the same topic."""
    if topic.name is not None:
        return topic.name
    info = ctx.services.metadata.topic_by_id(topic.topic_id)
    return topic.topic_id if info is None else info.name


def _partitions(ctx: RequestContext, topic: wire.DeleteTopicState) -> int:
    name = _meaning(ctx, topic)
    info = ctx.services.metadata.topic(name) if isinstance(name, str) else None
    return 0 if info is None else len(info.partitions)


def _failed(topic: wire.DeleteTopicState, code: ErrorCode, message: str | None) -> wire.DeletableTopicResult:
    return wire.DeletableTopicResult(
        name=topic.name, topic_id=topic.topic_id, error_code=code, error_message=message
    )
