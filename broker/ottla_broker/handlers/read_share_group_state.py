"""ReadShareGroupState: what a share group has done with a partition's records (KIP-932).

A partition's new leader sends it to the share coordinator before it serves the group, which fences earlier leaders.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.api_parts.share_state_requests import Answered, StateApi, serve
from ottla_broker.coordinator.share.state_batches import ShareKey, ShareState, to_wire
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages import read_share_group_state as wire

API = Api(
    84, (0, 0), senders="brokers", feature="share groups", needs={CLUSTER: CLUSTER_ACTION}, memory=MiB // 2
)


async def handle(ctx: RequestContext, request: wire.ReadShareGroupStateRequest) -> Any:
    return await serve(_STATE_API, ctx, request)


def _begin(
    coordinator: ShareStateCoordinator, key: ShareKey, data: wire.PartitionData, answered: Answered
) -> None:
    coordinator.read(key, data.leader_epoch, answered)


def _fields(state: ShareState) -> dict[str, Any]:
    return {
        "state_epoch": state.epoch,
        "start_offset": state.start,
        "state_batches": to_wire(state.batches),
    }


_STATE_API: Final = StateApi(
    _begin, wire.ReadShareGroupStateResponse, wire.ReadStateResult, wire.PartitionResult, _fields
)
