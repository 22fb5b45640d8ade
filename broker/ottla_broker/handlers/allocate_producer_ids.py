"""AllocateProducerIds, version 0: a block of producer ids for a broker. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.allocate_producer_ids import (
    AllocateProducerIdsRequest,
    AllocateProducerIdsResponse,
)


def handle(
    ctx: RequestContext, request: AllocateProducerIdsRequest
) -> Awaitable[AllocateProducerIdsResponse]:
    return serve.allocate_producer_ids(ctx.broker.member.active(), request)
