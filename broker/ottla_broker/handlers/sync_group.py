"""SyncGroup: the leader sends the assignment, and each member gets its share.

The response waits until the assignment is in the log. Version 3 added static members (KIP-345), 4 is flexible; from 5
the client must name the protocol type and name that it expects (KIP-559).
"""

from __future__ import annotations

from ottla_broker.coordinator.group.member import Sender
from ottla_broker.requests.api import GROUP, READ, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse

API = Api(14, (0, 5), coordinated=True, needs={GROUP: READ}, gate=GROUP, is_bulky=True)


async def handle(ctx: RequestContext, request: SyncGroupRequest) -> SyncGroupResponse:
    if ctx.version >= 5 and (request.protocol_type is None or request.protocol_name is None):
        return SyncGroupResponse(error_code=int(ErrorCode.INCONSISTENT_GROUP_PROTOCOL), assignment=b"")
    synced: Result[SyncGroupResponse] = Result()
    ctx.services.groups.sync(
        request.group_id,
        Sender(request.member_id, request.group_instance_id, request.generation_id),
        request.protocol_type,
        request.protocol_name,
        {assignment.member_id: assignment.assignment for assignment in request.assignments},
        synced.give,
    )
    del request
    return await synced
