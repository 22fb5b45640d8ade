"""ControlledShutdown, versions 0-3: a broker hands its leaderships over before it stops. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.controlled_shutdown import ControlledShutdownRequest, ControlledShutdownResponse


def handle(ctx: RequestContext, request: ControlledShutdownRequest) -> Awaitable[ControlledShutdownResponse]:
    return serve.controlled_shutdown(ctx.broker.member.active(), request)
