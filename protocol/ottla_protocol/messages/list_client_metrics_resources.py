"""ListClientMetricsResources, key 74: the names of client metrics configurations (KIP-714).

The only version is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class ListClientMetricsResourcesRequest(
    Message, key=ApiKey.LIST_CLIENT_METRICS_RESOURCES, versions="0", flexible="0+"
):
    """Asks for all names."""


class ClientMetricsResource(Struct):
    name: String = field(default="")


class ListClientMetricsResourcesResponse(
    Message, key=ApiKey.LIST_CLIENT_METRICS_RESOURCES, versions="0", flexible="0+"
):
    """All configurations."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    client_metrics_resources: list[ClientMetricsResource] = field(default_factory=list)
