"""UpdateMetadata, versions 0-8: the controller announces the live brokers and the partitions' leaders."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.update_metadata import UpdateMetadataRequest, UpdateMetadataResponse


def handle(ctx: RequestContext, request: UpdateMetadataRequest) -> Awaitable[UpdateMetadataResponse]:
    return ctx.services.member.controller_requests.update_metadata(request, ctx.version)
