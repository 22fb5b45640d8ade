"""ListClientMetricsResources: the names of the client metrics subscriptions (KIP-714)."""

from __future__ import annotations

from ottla_broker.requests.api import CLUSTER, DESCRIBE_CONFIGS, Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages.list_client_metrics_resources import (
    ClientMetricsResource,
    ListClientMetricsResourcesRequest,
    ListClientMetricsResourcesResponse,
)

API = Api(74, (0, 0), needs={CLUSTER: DESCRIBE_CONFIGS}, gate=CLUSTER)


async def handle(
    ctx: RequestContext, request: ListClientMetricsResourcesRequest
) -> ListClientMetricsResourcesResponse:
    return ListClientMetricsResourcesResponse(
        client_metrics_resources=[
            ClientMetricsResource(name=name) for name in sorted(ctx.services.metadata.client_metrics)
        ]
    )
