"""WriteShareGroupState: keep what a share group has done with records (KIP-932).

The leaders of partitions send it to the share coordinator, which answers when its log has committed the change. Version
1 has the number of records that need no delivery (KIP-1226).
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.api_parts.share_state_requests import Answered, StateApi, serve
from ottla_broker.coordinator.share.state_batches import ShareKey, StateChange, from_wire
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import write_share_group_state as wire

API = Api(
    85, (0, 1), senders="brokers", feature="share groups", needs={CLUSTER: CLUSTER_ACTION}, memory=MiB // 2
)


async def handle(ctx: RequestContext, request: wire.WriteShareGroupStateRequest) -> Any:
    return await serve(_STATE_API, ctx, request)


def _begin(
    coordinator: ShareStateCoordinator, key: ShareKey, data: wire.PartitionData, answered: Answered
) -> None:
    try:
        changes = from_wire(data.state_batches)
    except ValueError as error:
        answered(KafkaError(ErrorCode.INVALID_REQUEST, str(error)))
        return
    change = StateChange(
        data.state_epoch, data.leader_epoch, data.start_offset, data.delivery_complete_count, changes
    )
    coordinator.write(key, change, answered)


_STATE_API: Final = StateApi(
    _begin, wire.WriteShareGroupStateResponse, wire.WriteStateResult, wire.PartitionResult
)
