"""GetTelemetrySubscriptions: the metrics that a client is to push (KIP-714).

Served where there is ``metrics.listener``, which shows them.
"""

from __future__ import annotations

from ottla_broker.api_parts.client_telemetry import CODECS
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.get_telemetry_subscriptions import (
    GetTelemetrySubscriptionsRequest,
    GetTelemetrySubscriptionsResponse,
)

# Every client may, as in Kafka: what it may push is for the subscriptions to say.
API = Api(71, (0, 0), feature="client telemetry")


async def handle(
    ctx: RequestContext, request: GetTelemetrySubscriptionsRequest
) -> GetTelemetrySubscriptionsResponse:
    telemetry = ctx.services.telemetry
    assert telemetry is not None
    try:
        instance_id, instance = telemetry.subscribe(request.client_instance_id, ctx.connection)
    except KafkaError as error:
        return GetTelemetrySubscriptionsResponse(error_code=error.code)
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=instance_id,
        subscription_id=instance.subscription_id,
        accepted_compression_types=list(CODECS),
        push_interval_ms=instance.interval_ms,
        telemetry_max_bytes=telemetry.max_bytes,
        delta_temporality=False,
        requested_metrics=list(instance.metrics),
    )
