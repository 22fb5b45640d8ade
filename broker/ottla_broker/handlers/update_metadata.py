"""UpdateMetadata: the controller announces the live brokers and the partitions' leaders."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse

API = Api(6, (0, 8), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER, is_carried_out=True)


async def handle(ctx: RequestContext, request: UpdateMetadataRequest) -> UpdateMetadataResponse:
    return await in_task(ctx.services.member.controller_requests.update_metadata(request, ctx.version))
