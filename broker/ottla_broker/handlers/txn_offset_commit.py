"""TxnOffsetCommit (key 28), versions 0-4: offsets of a group that count once their transaction is committed.

Version 2 has leader epochs (KIP-320), 3 names the group's member and is flexible (KIP-447), 4 has
TRANSACTION_ABORTABLE (KIP-890). A partition that doesn't exist is refused alone.
"""

from __future__ import annotations

from collections.abc import Sequence

from ottla_broker.coordinator import codes
from ottla_broker.coordinator.group.commits import CommitItem
from ottla_broker.coordinator.group.offsets import Committed
from ottla_broker.handlers.authorization import DENIED, AclResource
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.transactions import late
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitResponse,
    TxnOffsetCommitResponsePartition,
    TxnOffsetCommitResponseTopic,
)

_KNOWS_LOADING = 2
"""Older clients fail on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""


def handle(ctx: RequestContext, request: TxnOffsetCommitRequest) -> PendingResponse | TxnOffsetCommitResponse:
    services = ctx.services
    now_ms = services.clock.now_ms()
    # As for OffsetCommit: a broker that has just started doesn't know the topics.
    unknown = codes.UNKNOWN_TOPIC_OR_PARTITION if services.knows_cluster else codes.NOT_COORDINATOR
    forbidden = _forbidden(ctx, request)
    items: list[CommitItem] = []
    waiting: list[TxnOffsetCommitResponsePartition] = []
    topics: list[TxnOffsetCommitResponseTopic] = []
    for topic in request.topics:
        info = services.metadata.topic(topic.name)
        known = () if info is None else info.partitions
        error = forbidden
        if not ctx.authorize(AclResource.TOPIC, topic.name):
            error = error or int(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
        answers = []
        for partition in topic.partitions:
            answer = TxnOffsetCommitResponsePartition(partition_index=partition.partition_index)
            answers.append(answer)
            if error or partition.partition_index not in known:
                answer.error_code = error or unknown
                continue
            committed = Committed(
                partition.committed_offset,
                partition.committed_leader_epoch,
                partition.committed_metadata or "",
                now_ms,
            )
            items.append((topic.name, partition.partition_index, committed))
            waiting.append(answer)
        topics.append(TxnOffsetCommitResponseTopic(name=topic.name, partitions=answers))
    response = TxnOffsetCommitResponse(topics=topics)
    if not items:
        return response
    producer = (request.producer_id, request.producer_epoch)
    if not services.groups.hear(request.group_id, producer, ctx.connection.connected_at):
        raise late(f"producer {request.producer_id}")
    pending = PendingResponse()

    def reply(errors: Sequence[int]) -> None:
        for answer, error in zip(waiting, errors, strict=True):
            if error == codes.COORDINATOR_LOAD_IN_PROGRESS and ctx.version < _KNOWS_LOADING:
                error = codes.COORDINATOR_NOT_AVAILABLE
            answer.error_code = error
        pending.complete(response)

    services.groups.commit_transactional(
        request.group_id,
        producer,
        request.member_id,
        request.group_instance_id,
        request.generation_id,
        items,
        reply,
    )
    return pending


def _forbidden(ctx: RequestContext, request: TxnOffsetCommitRequest) -> int:
    for resource, name in (
        (AclResource.TRANSACTIONAL_ID, request.transactional_id),
        (AclResource.GROUP, request.group_id),
    ):
        if not ctx.authorize(resource, name):
            return int(DENIED[resource])
    return 0
