"""AlterShareGroupOffsets: begin at other offsets with an empty share group (KIP-932)."""

from __future__ import annotations

from collections.abc import Mapping

from ottla_broker.api_parts.share_requests import services
from ottla_broker.coordinator.share.state_batches import UNINITIALIZED, TopicIdPartition
from ottla_broker.requests.api import GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import alter_share_group_offsets as wire

API = Api(
    91,
    (0, 0),
    feature="share groups",
    coordinated=True,
    needs={GROUP: READ, TOPIC: READ},
    gate=GROUP,
    memory=MiB // 2,
)


async def handle(
    ctx: RequestContext, request: wire.AlterShareGroupOffsetsRequest
) -> wire.AlterShareGroupOffsetsResponse:
    offsets: dict[TopicIdPartition, int] = {}
    names: dict[bytes, str] = {}
    topics: dict[str, wire.AlterShareGroupOffsetsResponseTopic] = {}
    for wanted in request.topics:
        name = wanted.topic_name
        answer = topics.setdefault(name, wire.AlterShareGroupOffsetsResponseTopic(topic_name=name))
        allowed = ctx.authorize(AclResource.TOPIC, name)
        found = ctx.services.metadata.topic(name) if allowed else None
        if found is not None:
            answer.topic_id = found.topic_id
            names[bytes(found.topic_id)] = name
        for each in wanted.partitions:
            if not allowed:
                failure = KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif found is None or each.partition_index not in found.partitions:
                failure = KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
            elif each.start_offset < UNINITIALIZED:
                failure = KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    f"The start offset {each.start_offset} is none; {UNINITIALIZED} begins as a new group does.",
                )
            else:
                offsets[bytes(found.topic_id), each.partition_index] = each.start_offset
                continue
            answer.partitions.append(_partition(each.partition_index, failure))
    changed: Result[Mapping[TopicIdPartition, KafkaError | None]] = Result()
    try:
        group = ctx.services.groups.share_group_or_new(request.group_id)
        services(ctx).offsets.alter(group, offsets, names, changed.give)
    except KafkaError as error:
        return wire.AlterShareGroupOffsetsResponse(error_code=error.code, error_message=error.message)
    for (topic_id, index), outcome in (await changed).items():
        topics[names[topic_id]].partitions.append(_partition(index, outcome))
    return wire.AlterShareGroupOffsetsResponse(responses=list(topics.values()))


def _partition(index: int, error: KafkaError | None) -> wire.AlterShareGroupOffsetsResponsePartition:
    if error is None:
        return wire.AlterShareGroupOffsetsResponsePartition(partition_index=index)
    return wire.AlterShareGroupOffsetsResponsePartition(
        partition_index=index, error_code=error.code, error_message=error.message
    )
