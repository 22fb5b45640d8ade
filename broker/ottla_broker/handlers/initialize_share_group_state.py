"""InitializeShareGroupState (key 83), version 0: begin to keep what a share group does with records (KIP-932).

Group coordinators send it to the share coordinator when a group gets partitions or another start. It needs
CLUSTER_ACTION on the cluster.
"""

from __future__ import annotations

from typing import Any, Final

from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.state_coordinator import ShareStateCoordinator
from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.share_state_requests import Answered, Api, serve
from ottla_protocol.messages import initialize_share_group_state as wire


def handle(ctx: RequestContext, request: wire.InitializeShareGroupStateRequest) -> Any:
    return serve(_API, ctx, request)


def _begin(
    coordinator: ShareStateCoordinator, key: ShareKey, data: wire.PartitionData, answered: Answered
) -> None:
    coordinator.initialize(key, data.state_epoch, data.start_offset, answered)


_API: Final = Api(
    _begin, wire.InitializeShareGroupStateResponse, wire.InitializeStateResult, wire.PartitionResult
)
