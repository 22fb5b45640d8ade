"""DeleteShareGroupState: forget what a share group has done with records (KIP-932).

Group coordinators send it to the share coordinator when a group, or its offsets, are deleted.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.api_parts.share_state_requests import Answered, StateApi, serve
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.requests.api import CLUSTER, CLUSTER_ACTION, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages import delete_share_group_state as wire

API = Api(
    86, (0, 0), senders="brokers", feature="share groups", needs={CLUSTER: CLUSTER_ACTION}, memory=MiB // 2
)


async def handle(ctx: RequestContext, request: wire.DeleteShareGroupStateRequest) -> Any:
    return await serve(_STATE_API, ctx, request)


def _begin(
    coordinator: ShareStateCoordinator, key: ShareKey, data: wire.PartitionData, answered: Answered
) -> None:
    coordinator.delete(key, answered)


_STATE_API: Final = StateApi(
    _begin, wire.DeleteShareGroupStateResponse, wire.DeleteStateResult, wire.PartitionResult
)
