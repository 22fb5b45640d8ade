"""ConsumerGroupHeartbeat: join, stay in and leave a group whose partitions the broker assigns.

KIP-848. The response waits until what the heartbeat changes is in the log. Version 1 adds a regular expression for the
topics, and the client makes its member id.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat, HeartbeatAnswer
from ottla_broker.coordinator.group.modern.member import Partitions, partitions_of
from ottla_broker.requests.api import DESCRIBE, GROUP, READ, TOPIC, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.acls import AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import consumer_group_heartbeat as wire
from ottla_protocol.messages.share_group_heartbeat import ShareGroupHeartbeatResponse

API = Api(
    68,
    (0, 1),
    feature="consumer protocol",
    coordinated=True,
    needs={GROUP: READ, TOPIC: DESCRIBE},
    gate=GROUP,
    memory=2 * MiB,
)

R = TypeVar("R", wire.ConsumerGroupHeartbeatResponse, ShareGroupHeartbeatResponse)


async def handle(
    ctx: RequestContext, request: wire.ConsumerGroupHeartbeatRequest
) -> wire.ConsumerGroupHeartbeatResponse:
    for name in request.subscribed_topic_names or ():
        if not ctx.authorize(AclResource.TOPIC, name):
            return wire.ConsumerGroupHeartbeatResponse(error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    heartbeat = Heartbeat(
        member_id=request.member_id,
        epoch=request.member_epoch,
        instance_id=request.instance_id,
        rack_id=request.rack_id,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        topics=request.subscribed_topic_names,
        regex=request.subscribed_topic_regex,
        assignor=request.server_assignor,
        owned=_owned(request.topic_partitions),
        client_id=ctx.client_id or "",
        client_host="/" + ctx.connection.client_host,
        may_see=lambda name: ctx.shows(AclResource.TOPIC, name),
        needs_member_id=ctx.version >= 1,
    )
    answer: Result[HeartbeatAnswer] = Result()
    ctx.services.groups.consumer_heartbeat(request.group_id, heartbeat, answer.give)
    return answered(await answer, wire.ConsumerGroupHeartbeatResponse)


def _owned(topics: Sequence[wire.HeartbeatTopicPartitions] | None) -> Partitions | None:
    return None if topics is None else partitions_of((topic.topic_id, topic.partitions) for topic in topics)


def answered(answer: HeartbeatAnswer, response: Callable[..., R]) -> R:
    """The response of a consumer or a share group."""
    if answer.error is not None:
        return response(error_code=answer.error.code, error_message=answer.error.message)
    assignment = None
    if answer.assignment is not None:
        assignment = wire.HeartbeatAssignment(
            topic_partitions=[
                wire.HeartbeatTopicPartitions(topic_id=topic_id, partitions=sorted(indexes))
                for topic_id, indexes in answer.assignment.items()
            ]
        )
    return response(
        member_id=answer.member_id,
        member_epoch=answer.epoch,
        heartbeat_interval_ms=answer.interval_ms,
        assignment=assignment,
    )
