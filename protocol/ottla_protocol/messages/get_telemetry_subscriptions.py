"""GetTelemetrySubscriptions, key 71: the metrics that a client is to push (KIP-714).

The only version is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Message, String, Uuid, field


class GetTelemetrySubscriptionsRequest(
    Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    client_instance_id: Uuid = field(default=ZERO_UUID)
    """Zero in a client's first request."""


class GetTelemetrySubscriptionsResponse(
    Message, key=ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, versions="0", flexible="0+"
):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    client_instance_id: Uuid = field(default=ZERO_UUID)
    """The client's id; a new one for a client that had none."""
    subscription_id: Int32 = field(default=0)
    """Changes with what is subscribed."""
    accepted_compression_types: list[Int8] = field(default_factory=list)
    """Codecs, the preferred one first."""
    push_interval_ms: Int32 = field(default=0)
    telemetry_max_bytes: Int32 = field(default=0)
    """The most bytes of a push, compressed."""
    delta_temporality: Bool = field(default=False)
    """Whether counters are to be pushed as differences."""
    requested_metrics: list[String] = field(default_factory=list)
    """Prefixes of names; ``*``: all, none: no metrics."""
