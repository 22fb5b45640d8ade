"""LeaderAndIsr: the controller assigns the partitions that this broker leads and follows."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.handlers.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.leader_and_isr import LeaderAndIsrRequest, LeaderAndIsrResponse

API = Api(4, (0, 7), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER, is_carried_out=True)


def handle(ctx: RequestContext, request: LeaderAndIsrRequest) -> Awaitable[LeaderAndIsrResponse]:
    return ctx.services.member.controller_requests.leader_and_isr(request, ctx.version)
