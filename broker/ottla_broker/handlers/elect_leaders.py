"""ElectLeaders, versions 0-2: preferred and unclean elections. The controller serves it."""

from __future__ import annotations

from collections.abc import Awaitable

from ottla_broker.controller.cluster import serve
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, ElectLeadersResponse


def handle(ctx: RequestContext, request: ElectLeadersRequest) -> Awaitable[ElectLeadersResponse]:
    return serve.elect_leaders(ctx.broker.member.active(), request, ctx.version)
