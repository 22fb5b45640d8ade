"""DeleteShareGroupOffsets: forget where an empty share group is in topics (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.api_parts.share_requests import services
from ottla_broker.coordinator.share.state_batches import TopicIdPartition
from ottla_broker.requests.api import DELETE, GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.delete_share_group_offsets import (
    DeleteShareGroupOffsetsRequest,
    DeleteShareGroupOffsetsResponse,
    DeleteShareGroupOffsetsResponseTopic,
)

API = Api(
    92,
    (0, 0),
    feature="share groups",
    coordinated=True,
    needs={GROUP: DELETE, TOPIC: READ},
    gate=GROUP,
    memory=MiB // 2,
)


async def handle(
    ctx: RequestContext, request: DeleteShareGroupOffsetsRequest
) -> DeleteShareGroupOffsetsResponse:
    changed: Result[Mapping[TopicIdPartition, KafkaError | None]] = Result()
    answers: dict[bytes, DeleteShareGroupOffsetsResponseTopic] = {}
    others: list[DeleteShareGroupOffsetsResponseTopic] = []

    try:
        group = ctx.services.groups.describe_share_group(request.group_id)
        ids = {topic.name: topic_id for topic_id, topic in group.initialized.items()}
        for name in dict.fromkeys(topic.topic_name for topic in request.topics):
            answer = DeleteShareGroupOffsetsResponseTopic(topic_name=name)
            if not ctx.authorize(AclResource.TOPIC, name):
                answer.error_code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
                others.append(answer)
            elif name in ids:
                answer.topic_id = ids[name]
                answers[ids[name]] = answer
            else:
                answer.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                answer.error_message = f"The group has no offsets of the topic {name}."
                others.append(answer)
        services(ctx).offsets.delete(group, list(answers), changed.give)
    except KafkaError as error:
        return DeleteShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    for (topic_id, _), outcome in (await changed).items():
        answer = answers[topic_id]
        if outcome is not None and not answer.error_code:
            answer.error_code, answer.error_message = outcome.code, outcome.message
    return DeleteShareGroupOffsetsResponse(responses=[*answers.values(), *others])
