"""AllocateProducerIds: the controller gives a broker a block of producer ids."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)

API = Api(67, (0, 0), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER)


async def handle(ctx: RequestContext, request: AllocateProducerIdsRequest) -> AllocateProducerIdsResponse:
    try:
        if request.broker_epoch < 0:
            # For no registration: a process that was replaced could have sent it.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        block = await in_task(
            ctx.services.member.controller.allocate_producer_ids(request.broker_id, request.broker_epoch)
        )
    except KafkaError as error:
        return AllocateProducerIdsResponse(error_code=error.code)
    return AllocateProducerIdsResponse(
        producer_id_start=block.first, producer_id_len=block.last - block.first + 1
    )
