"""ListClientMetricsResources (key 74), version 0: empty, since no client metrics can be configured (KIP-714)."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.messages.list_client_metrics_resources import (
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)


def handle(
    ctx: RequestContext, request: ListClientMetricsResourcesRequest
) -> ListClientMetricsResourcesResponse:
    return ListClientMetricsResourcesResponse()
