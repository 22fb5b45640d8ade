"""AlterPartitionReassignments, version 0: partitions move to other replicas. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
)


def handle(
    ctx: RequestContext, request: AlterPartitionReassignmentsRequest
) -> Awaitable[AlterPartitionReassignmentsResponse]:
    return serve.alter_partition_reassignments(ctx.broker.member.active(), request)
