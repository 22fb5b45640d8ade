"""ControlledShutdown: a broker asks the controller to move its leaderships before it stops."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.controlled_shutdown import (
    ControlledShutdownRequest,
    ControlledShutdownResponse,
    RemainingPartition,
)

API = Api(7, (0, 3), senders="brokers", needs={CLUSTER: CLUSTER_ACTION}, gate=CLUSTER)

_BROKER_EPOCH_SINCE = 2


async def handle(ctx: RequestContext, request: ControlledShutdownRequest) -> ControlledShutdownResponse:
    try:
        if ctx.version >= _BROKER_EPOCH_SINCE and request.broker_epoch < 0:
            # For no registration: a process that was replaced could have sent it.
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)
        remaining = await in_task(
            ctx.services.member.controller.controlled_shutdown(request.broker_id, request.broker_epoch)
        )
    except KafkaError as error:
        return ControlledShutdownResponse(error_code=error.code)
    return ControlledShutdownResponse(
        remaining_partitions=[
            RemainingPartition(topic_name=name, partition_index=index) for name, index in remaining
        ]
    )
