"""ReadShareGroupStateSummary: where share groups are in partitions (KIP-932).

Group coordinators send it to the share coordinator to describe a group. Version 1 has the number of
records that need no delivery (KIP-1226).
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.api_parts.share_state_requests import Answered, StateApi, serve
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages import read_share_group_state_summary as wire

API = Api(
    87, (0, 1), senders="brokers", feature="share groups", needs={CLUSTER: CLUSTER_ACTION}, memory=MiB // 2
)


async def handle(ctx: RequestContext, request: wire.ReadShareGroupStateSummaryRequest) -> Any:
    return await serve(_STATE_API, ctx, request)


def _begin(
    coordinator: ShareStateCoordinator, key: ShareKey, data: wire.PartitionData, answered: Answered
) -> None:
    coordinator.summary(key, answered)


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.epoch,
        "leader_epoch": state.leader_epoch,
        "start_offset": state.start,
        "delivery_complete_count": state.completed,
    }


_STATE_API: Final = StateApi(
    _begin,
    wire.ReadShareGroupStateSummaryResponse,
    wire.ReadStateSummaryResult,
    wire.PartitionResult,
    _fields,
)
