"""AlterPartition, versions 0-3: a leader asks for other in-sync replicas. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.alter_partition import AlterPartitionRequest, AlterPartitionResponse


def handle(ctx: RequestContext, request: AlterPartitionRequest) -> Awaitable[AlterPartitionResponse]:
    return serve.alter_partition(ctx.broker.member.active(), request, ctx.version)
