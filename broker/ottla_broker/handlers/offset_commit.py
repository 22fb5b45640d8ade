"""OffsetCommit (key 8), versions 0-9: store a consumer group's positions.

Version 1 has a timestamp per partition, 2-4 a retention time for all, 6 adds leader epochs (KIP-320), 7 static members
(KIP-345), 8 is flexible, 9 has errors of server-side groups (KIP-848). Version 0 stores the positions in ZooKeeper, or
in the embedded store. A partition that doesn't exist is refused alone; the others are committed.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem, java_length
from ottla_broker.coordinator.group.offsets import NO_EXPIRY, Committed
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.turns import Steps, whole
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)


def partition_errors(ctx: RequestContext, topic: str, forbidden: int) -> Callable[[int], int]:
    """Gives the error code for a commit of each of the topic's partitions, 0 for none.

    ``forbidden``: the error code for the request as a whole, if it has one.
    """
    error = forbidden
    if not ctx.authorize(AclResource.TOPIC, topic):
        error = error or int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    if error:
        return lambda index: error
    info = ctx.services.metadata.topic(topic)
    known = () if info is None else info.partitions
    # A broker that has just started doesn't know the topics, and others coordinate its groups now. librdkafka gives up
    # committing after UNKNOWN_TOPIC_OR_PARTITION, and looks for the coordinator after NOT_COORDINATOR.
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION if ctx.services.knows_cluster else codes.NOT_COORDINATOR
    return lambda index: codes.NONE if index in known else unknown


def steps(
    ctx: RequestContext, request: OffsetCommitRequest
) -> Steps[PendingResponse | OffsetCommitResponse | Awaitable[OffsetCommitResponse]]:
    if ctx.version == 0:
        return _to_zookeeper(ctx, request)
    services = ctx.services
    now_ms = services.clock.now_ms()
    expire_ms = NO_EXPIRY if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
    forbidden = 0
    if not ctx.authorize(AclResource.GROUP, request.group_id):
        forbidden = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    items: list[CommitItem] = []
    waiting: list[OffsetCommitResponsePartition] = []
    topics: list[OffsetCommitResponseTopic] = []
    for topic in request.topics:
        error_of = partition_errors(ctx, topic.name, forbidden)
        answers = []
        for partition in topic.partitions:
            answer = OffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            answer.error_code = error_of(partition.partition_index)
            yield 1
            if answer.error_code:
                continue
            committed = Committed(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
                expire_ms,
            )
            items.append((topic.name, partition.partition_index, committed))
            waiting.append(answer)
        yield 1
        topics.append(OffsetCommitResponseTopic(name=topic.name, partitions=answers))
    response = OffsetCommitResponse(topics=topics)
    if not items:
        return response
    pending = PendingResponse()

    def reply(errors: Sequence[int]) -> None:
        for answer, error in zip(waiting, errors, strict=True):
            answer.error_code = error
        pending.complete(response)

    services.groups.commit(
        request.group_id,
        request.member_id,
        request.group_instance_id,
        request.generation_id_or_member_epoch,
        items,
        reply,
        ctx.version,
    )
    return pending


handle = whole(steps)


async def _to_zookeeper(ctx: RequestContext, request: OffsetCommitRequest) -> OffsetCommitResponse:
    """Version 0: the group has no members that the broker knows, so nothing but the partitions is checked."""
    services = ctx.services
    limit = services.config.offset_metadata_max_bytes
    forbidden = 0
    if not ctx.authorize(AclResource.GROUP, request.group_id):
        forbidden = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)
    answers: dict[tuple[str, int], int] = {}
    offsets: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        error_of = partition_errors(ctx, topic.name, forbidden)
        for each in topic.partitions:
            key = (topic.name, each.partition_index)
            answers[key] = error_of(each.partition_index)
            if not answers[key] and java_length(each.committed_metadata or "") > limit:
                answers[key] = codes.OFFSET_METADATA_TOO_LARGE
            if not answers[key]:
                offsets[key] = each.committed_offset
    answers.update(await services.zookeeper_offsets.commit(request.group_id, offsets))
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index,
                        error_code=answers[topic.name, each.partition_index],
                    )
                    for each in topic.partitions
                ],
            )
            for topic in request.topics
        ]
    )
