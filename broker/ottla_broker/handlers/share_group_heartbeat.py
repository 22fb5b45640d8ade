"""ShareGroupHeartbeat: join, stay in and leave a share group (KIP-932).

The response waits until what the heartbeat changes is in the log, and new partitions have state.
"""

from __future__ import annotations

from ottla_broker.api_parts.share_requests import check_member_id
from ottla_broker.coordinator.group.modern.heartbeats import HeartbeatAnswer
from ottla_broker.coordinator.group.share.groups import ShareHeartbeat
from ottla_broker.handlers.consumer_group_heartbeat import answered
from ottla_broker.requests.api import DESCRIBE, GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import share_group_heartbeat as wire

API = Api(
    76,
    (1, 1),
    feature="share groups",
    coordinated=True,
    needs={GROUP: READ, TOPIC: DESCRIBE},
    gate=GROUP,
    memory=2 * MiB,
)


async def handle(
    ctx: RequestContext, request: wire.ShareGroupHeartbeatRequest
) -> wire.ShareGroupHeartbeatResponse:
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
    answer: Result[HeartbeatAnswer] = Result()
    ctx.services.groups.share_heartbeat(request.group_id, heartbeat, answer.give)
    return answered(await answer, wire.ShareGroupHeartbeatResponse)
