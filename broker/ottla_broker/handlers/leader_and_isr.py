"""LeaderAndIsr: the controller assigns the partitions that this broker leads and follows."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

API = Api(4, (0, 7), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER, is_carried_out=True)


async def handle(ctx: RequestContext, request: LeaderAndIsrRequest) -> LeaderAndIsrResponse:
    return await in_task(ctx.services.member.controller_requests.leader_and_isr(request, ctx.version))
