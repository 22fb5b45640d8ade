"""PushTelemetry: takes a client's metrics (KIP-714)."""

from __future__ import annotations

from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.push_telemetry import PushTelemetryRequest, PushTelemetryResponse

# Every client may, as in Kafka: what it may push is for the subscriptions to say.
API = Api(72, (0, 0), feature="client telemetry")


async def handle(ctx: RequestContext, request: PushTelemetryRequest) -> PushTelemetryResponse:
    telemetry = ctx.services.telemetry
    assert telemetry is not None
    try:
        await in_task(
            telemetry.push(
                request.client_instance_id,
                request.subscription_id,
                request.terminating,
                request.compression_type,
                request.metrics,
                ctx.connection,
            )
        )
    except KafkaError as error:
        return PushTelemetryResponse(error_code=error.code)
    return PushTelemetryResponse()
