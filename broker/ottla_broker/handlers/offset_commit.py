"""OffsetCommit (key 8), versions 1-9: store a consumer group's positions.

Version 1 has a timestamp per partition, 2-4 a retention time for all, 6 adds leader epochs (KIP-320), 7 static members
(KIP-345), 8 is flexible, 9 has errors of server-side groups (KIP-848). Version 0 commits to ZooKeeper and isn't served.
A partition that doesn't exist is refused alone; the others are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem
from ottla_broker.coordinator.group.offsets import NO_EXPIRY, Committed
from ottla_broker.handlers.context import RequestContext
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


def handle(ctx: RequestContext, request: OffsetCommitRequest) -> PendingResponse | OffsetCommitResponse:
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
    )
    return pending
