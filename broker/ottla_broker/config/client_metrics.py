"""The configs of client metrics subscriptions (KIP-714), which IncrementalAlterConfigs changes.

Kafka: ``ClientMetricsConfigs``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from ottla_broker.config.model import CLUSTER_WIDE, INT, LIST, Key

METRICS: Final = "metrics"
INTERVAL_MS: Final = "interval.ms"
MATCH: Final = "match"

DEFAULT_INTERVAL_MS: Final = 300_000
MIN_INTERVAL_MS: Final = 100
MAX_INTERVAL_MS: Final = 3_600_000

MATCHED: Final = (
    "client_id",
    "client_instance_id",
    "client_software_name",
    "client_software_version",
    "client_source_address",
    "client_source_port",
)
"""What of a client can be matched."""

CLIENT_METRICS_KEYS: Final[Mapping[str, Key[Any]]] = {
    INTERVAL_MS: Key(
        INT,
        DEFAULT_INTERVAL_MS,
        "Metrics push interval in milliseconds",
        None,
        CLUSTER_WIDE,
        name=INTERVAL_MS,
    ),
    MATCH: Key(LIST, (), "Client match criteria", None, CLUSTER_WIDE, name=MATCH),
    METRICS: Key(LIST, (), "Telemetry metric name prefix list", None, CLUSTER_WIDE, name=METRICS),
}


def check_client_metrics_config(name: str, text: str) -> None:
    """Check a single setting. Raises ValueError with Kafka's message."""
    key = CLIENT_METRICS_KEYS.get(name)
    if key is None:
        raise ValueError(f"Unknown client metrics configuration: {name}")
    value = key.parse(text)
    if name == INTERVAL_MS and not MIN_INTERVAL_MS <= value <= MAX_INTERVAL_MS:
        raise ValueError(
            f"Invalid value {value} for {name}, interval must be between 100 and 3600000 (1 hour)"
        )
    if name == MATCH:
        read_match(value)


def read_match(patterns: Sequence[str]) -> dict[str, str]:
    """The regular expression for each thing to match. Raises ValueError."""
    found = {}
    for pattern in patterns:
        name, equals, expression = pattern.partition("=")
        if not equals or "=" in expression or not expression or name.strip() not in MATCHED:
            raise ValueError(f"Illegal client matching pattern: {pattern}")
        found[name.strip()] = expression.strip()
    return found
