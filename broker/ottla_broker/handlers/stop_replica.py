"""StopReplica: the controller stops or deletes replicas on this broker."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.messages.stop_replica import StopReplicaRequest, StopReplicaResponse

API = Api(5, (0, 4), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER, is_carried_out=True)


async def handle(ctx: RequestContext, request: StopReplicaRequest) -> StopReplicaResponse:
    return await in_task(ctx.services.member.controller_requests.stop_replica(request, ctx.version))
