"""JoinGroup: become, or stay, a member of the group's next generation.

The response waits until the generation's members are known; only the leader's lists them. Version 0 has no rebalance
timeout (the session timeout replaces it), 4 gives a dynamic member its id first (KIP-394), 5 added static members
(KIP-345), 6 is flexible, 7 adds the protocol type to the response, 8 a reason for the log (KIP-800), and 9 lets a
returning static leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from ottla_broker.coordinator.group.membership import DEFAULT_REASON, JoinRequest
from ottla_broker.requests.api import GROUP, READ, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import Result
from ottla_protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse

# About a thousand protocols, which a group compares for each member.
API = Api(11, (0, 9), coordinated=True, needs={GROUP: READ}, gate=GROUP, memory=MiB // 4, is_bulky=True)


async def handle(ctx: RequestContext, request: JoinGroupRequest) -> JoinGroupResponse:
    version = ctx.version
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=ctx.client_id or "",
        client_host="/" + ctx.connection.client_host,
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms if version >= 1 else request.session_timeout_ms,
        protocol_type=request.protocol_type,
        # A repeated name counts once.
        protocols=tuple({protocol.name: protocol.metadata for protocol in request.protocols}.items()),
        needs_known_id=version >= 4,
        can_skip_assignment=version >= 9,
        reason=request.reason or DEFAULT_REASON,
    )
    joined: Result[JoinGroupResponse] = Result()
    ctx.services.groups.join(request.group_id, join, joined.give)
    del request, join
    response = await joined
    # Null and empty mean the same; versions before 7 have no null.
    response.protocol_name = response.protocol_name or ("" if version < 7 else None)
    return response
