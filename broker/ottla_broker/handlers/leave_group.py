"""LeaveGroup: members leave, and the others rebalance.

Up to version 2 a member leaves for itself. From 3 a request can name several members, static ones by their instance
alone (KIP-345). Version 4 is flexible, 5 adds reasons for the log (KIP-800).
"""

from __future__ import annotations

from ottla_broker.coordinator.group.membership import DEFAULT_REASON, LeaveRequest
from ottla_broker.requests.api import GROUP, READ, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

API = Api(13, (0, 5), coordinated=True, needs={GROUP: READ}, gate=GROUP, memory=2 * MiB, is_carried_out=True)


async def handle(ctx: RequestContext, request: LeaveGroupRequest) -> LeaveGroupResponse:
    if ctx.version < 3:
        error, errors = ctx.services.groups.leave(
            request.group_id, [LeaveRequest(request.member_id, None, DEFAULT_REASON)]
        )
        return LeaveGroupResponse(error_code=error or errors[0])
    members = [
        LeaveRequest(member.member_id, member.group_instance_id, member.reason or DEFAULT_REASON)
        for member in request.members
    ]
    error, errors = ctx.services.groups.leave(request.group_id, members)
    return LeaveGroupResponse(
        error_code=error,
        members=[
            MemberResponse(member_id=member.member_id, group_instance_id=member.instance_id, error_code=code)
            for member, code in zip(members, errors, strict=False)
        ],
    )
