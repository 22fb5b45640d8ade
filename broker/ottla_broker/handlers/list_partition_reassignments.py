"""ListPartitionReassignments, version 0: the moves that are under way. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)


def handle(
    ctx: RequestContext, request: ListPartitionReassignmentsRequest
) -> Awaitable[ListPartitionReassignmentsResponse]:
    return serve.list_partition_reassignments(ctx.broker.member.active(), request)
