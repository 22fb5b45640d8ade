"""Heartbeat: keeps a member's session alive; answered inline.

Version 3 added static members (KIP-345), 4 is flexible.
"""

from __future__ import annotations

from ottla_broker.coordinator.group.member import Sender
from ottla_broker.requests.api import GROUP, READ, Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse

API = Api(12, (0, 4), coordinated=True, needs={GROUP: READ}, gate=GROUP)


async def handle(ctx: RequestContext, request: HeartbeatRequest) -> HeartbeatResponse:
    sender = Sender(request.member_id, request.group_instance_id, request.generation_id)
    return HeartbeatResponse(error_code=ctx.services.groups.heartbeat(request.group_id, sender))
