"""AlterPartition, versions 0-3: a leader asks the controller for other in-sync replicas."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        return await ctx.broker.member.controller.alter_partition(request, ctx.version)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
