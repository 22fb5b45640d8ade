"""OffsetCommit: store a consumer group's positions.

Version 1 has a timestamp per partition, 2-4 a retention time for all, 6 adds leader epochs (KIP-320), 7 static members
(KIP-345), 8 is flexible, 9 has errors of server-side groups (KIP-848). Version 0 stores the positions in ZooKeeper, or
in the embedded store. A partition that doesn't exist is refused alone; the others are committed.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem, java_length
from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.offsets import NO_EXPIRY, Committed
from ottla_broker.requests.api import GROUP, READ, TOPIC, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result, in_task, pause
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import offset_commit as wire

API = Api(8, (0, 9), coordinated=True, needs={GROUP: READ, TOPIC: READ}, is_carried_out=True)

T = TypeVar("T")
P = TypeVar("P")


async def commit_items(
    ctx: RequestContext,
    request: Any,
    forbidden: int,
    committed: Callable[[Any], Committed],
    new_topic: Callable[..., T],
    new_partition: Callable[..., P],
) -> tuple[list[CommitItem], list[P], list[T]]:
    """Return a request's commits, the answers of those partitions, and the response's topics, with all answers.

    A partition that can't be committed has its error. ``forbidden``: the error code for the request as a whole, if it
    has one; ``committed`` makes a partition's offset.
    """
    items: list[CommitItem] = []
    waiting: list[P] = []
    topics: list[T] = []
    for topic in request.topics:
        error_of = _partition_errors(ctx, topic.name, forbidden)
        answers = []
        for partition in topic.partitions:
            index = partition.partition_index
            error = error_of(index)
            answer = new_partition(partition_index=index, error_code=error)
            answers.append(answer)
            await pause(1)
            if not error:
                items.append((topic.name, index, committed(partition)))
                waiting.append(answer)
        await pause(1)
        if answers:
            topics.append(new_topic(name=topic.name, partitions=answers))
    return items, waiting, topics


def _partition_errors(ctx: RequestContext, topic: str, forbidden: int) -> Callable[[int], int]:
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


async def handle(ctx: RequestContext, request: wire.OffsetCommitRequest) -> wire.OffsetCommitResponse:
    services = ctx.services
    now_ms = services.clock.now_ms()
    expire_ms = NO_EXPIRY if request.retention_time_ms == -1 else now_ms + request.retention_time_ms
    forbidden = 0
    if not ctx.authorize(AclResource.GROUP, request.group_id):
        forbidden = int(ErrorCode.GROUP_AUTHORIZATION_FAILED)

    def committed(partition: wire.OffsetCommitRequestPartition) -> Committed:
        return Committed(
            partition.committed_offset,
            partition.committed_leader_epoch,
            partition.committed_metadata or "",
            now_ms if partition.commit_timestamp == -1 else partition.commit_timestamp,
            expire_ms,
        )

    items, waiting, topics = await commit_items(
        ctx, request, forbidden, committed, wire.OffsetCommitResponseTopic, wire.OffsetCommitResponsePartition
    )
    response = wire.OffsetCommitResponse(topics=topics)
    if not items:
        return response
    if ctx.version == 0:
        return await _to_zookeeper(ctx, request.group_id, items, waiting, response)
    written: Result[Sequence[int]] = Result()
    services.groups.commit(
        request.group_id,
        Sender(request.member_id, request.group_instance_id, request.generation_id_or_member_epoch),
        items,
        written.give,
        ctx.version,
    )
    for answer, error in zip(waiting, await written, strict=True):
        answer.error_code = error
    return response


async def _to_zookeeper(
    ctx: RequestContext,
    group_id: str,
    items: Sequence[CommitItem],
    answers: Sequence[wire.OffsetCommitResponsePartition],
    response: wire.OffsetCommitResponse,
) -> wire.OffsetCommitResponse:
    """Version 0: the group has no members that the broker knows, so nothing but the partitions is checked."""
    limit = ctx.services.config.offset_metadata_max_bytes
    offsets: dict[tuple[str, int], int] = {}
    for (topic, index, committed), answer in zip(items, answers, strict=True):
        if java_length(committed.metadata) > limit:
            answer.error_code = codes.OFFSET_METADATA_TOO_LARGE
        else:
            offsets[topic, index] = committed.offset
    errors = await in_task(ctx.services.zookeeper_offsets.commit(group_id, offsets))
    for (topic, index, _), answer in zip(items, answers, strict=True):
        answer.error_code = answer.error_code or errors[topic, index]
    return response
