"""AlterPartition, versions 0-3: a leader asks the controller for other in-sync replicas."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


async def handle(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        if request.broker_epoch < 0:
            # For no registration: a process that was replaced could have sent it.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return await ctx.services.member.controller.alter_partition(request, ctx.version)
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
