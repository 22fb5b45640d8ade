"""AlterPartition: a leader asks the controller for other in-sync replicas."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse

API = Api(56, (0, 3), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER)


async def handle(ctx: RequestContext, request: AlterPartitionRequest) -> AlterPartitionResponse:
    try:
        if request.broker_epoch < 0:
            # For no registration: a process that was replaced could have sent it.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        return await in_task(ctx.services.member.controller.alter_partition(request, ctx.version))
    except KafkaError as error:
        return AlterPartitionResponse(error_code=error.code)
