"""Keys of metrics and health checks, which are Ottla's own: Kafka leaves them to JMX."""

from __future__ import annotations

from typing import Final

from ottla_broker.config.model import Validator, at_least, between, boolean, integer, string
from ottla_broker.config.server_keys import MOST_NEW_PARTITIONS
from ottla_protocol.prometheus import parse_address

_OWN: Final = "Kafka has no such key."


def check_address(text: str) -> str | None:
    """Return why a text is no address of a listener, None if it is one or empty."""
    return None if not text or parse_address(text) else "Expected HOST:PORT, or a port of 127.0.0.1"


class MetricsKeys:
    """Keys of monitoring."""

    metrics_listener = string(
        "",
        "The address that serves /metrics for Prometheus, /health/live and /health/ready over plain HTTP, such as"
        " 127.0.0.1:9404. A port alone means 127.0.0.1; empty serves nothing. If the port is taken, the broker starts"
        " without it and tries again.",
        Validator(check_address, "HOST:PORT, a port, or empty"),
        note=_OWN,
    )
    metrics_max_series = integer(
        200_000,
        "The most samples of single topics, partitions and groups in one response of /metrics. The others are left"
        " out, and ottla_metrics_dropped_series says how many.",
        at_least(0),
        note=_OWN,
    )
    ottla_lag_history_enable = boolean(
        True,
        "Keep a week of each group's lag in the topic __ottla_group_lag, which ottla groups lag --history"
        " and /lag of metrics.listener show.",
        note=_OWN,
    )
    ottla_lag_history_interval_ms = integer(
        60_000,
        "The time between two samples of each group's lag. The last 360 samples are kept, and before them 680, each the"
        " fifteenth: with the default, those of six hours and of a week.",
        at_least(1000),
        note=_OWN,
    )
    ottla_lag_history_max_groups = integer(
        5_000, "The most groups that a broker samples; the others have no history.", at_least(0), note=_OWN
    )
    ottla_lag_history_num_partitions = integer(
        4,
        "The partitions of __ottla_group_lag when it is created.",
        between(1, MOST_NEW_PARTITIONS),
        note=_OWN,
    )

    telemetry_max_bytes = integer(
        1_048_576,
        "The most bytes of metrics that a client may push at once, compressed and decompressed (KIP-714).",
        at_least(1),
    )
    ottla_telemetry_max_series = integer(
        50_000,
        "The most series of metrics that clients have pushed and that are kept for /metrics.",
        at_least(0),
        note=_OWN,
    )
