"""PushTelemetry, key 72: a client's metrics, as OTLP MetricsData (KIP-714).

The only version is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Bytes, Int8, Int16, Int32, Message, Uuid, field


class PushTelemetryRequest(Message, key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    client_instance_id: Uuid = field(default=ZERO_UUID)
    subscription_id: Int32 = field(default=0)
    terminating: Bool = field(default=False)
    """The client ends, and pushes for the last time."""
    compression_type: Int8 = field(default=0)
    metrics: Bytes = field(default=b"")


class PushTelemetryResponse(Message, key=ApiKey.PUSH_TELEMETRY, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
