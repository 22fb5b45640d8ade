"""ShareGroupHeartbeat (key 76), version 1: join, stay in and leave a share group (KIP-932).

The response waits until what the heartbeat changes is in the log, and new partitions have state.
"""

from __future__ import annotations

from ottla_broker.coordinator.group.share.groups import ShareHeartbeat, ShareHeartbeatAnswer
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.share_requests import check_member_id
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_group_heartbeat as wire


def handle(
    ctx: RequestContext, request: wire.ShareGroupHeartbeatRequest
) -> PendingResponse | wire.ShareGroupHeartbeatResponse:
    try:
        check_member_id(request.member_id)
    except KafkaError as error:
        return wire.ShareGroupHeartbeatResponse(error_code=error.code, error_message=error.message)
    for name in request.subscribed_topic_names or ():
        if not ctx.authorize(AclResource.TOPIC, name):
            return wire.ShareGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = ShareHeartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        rack_id=request.rack_id,
        topics=request.subscribed_topic_names,
        client_id=ctx.client_id or "",
        client_host="/" + ctx.connection.client_host,
    )
    pending = PendingResponse()

    def reply(answer: ShareHeartbeatAnswer) -> None:
        pending.complete(_response(answer))

    ctx.services.groups.share_heartbeat(request.group_id, heartbeat, reply)
    return pending


def _response(answer: ShareHeartbeatAnswer) -> wire.ShareGroupHeartbeatResponse:
    if answer.error is not None:
        return wire.ShareGroupHeartbeatResponse(
            error_code=answer.error.code, error_message=answer.error.message
        )
    assignment = None
    if answer.assignment is not None:
        assignment = wire.Assignment(
            topic_partitions=[
                wire.TopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in answer.assignment.items()
            ]
        )
    return wire.ShareGroupHeartbeatResponse(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=assignment,
    )
