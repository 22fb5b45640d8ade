"""``ShareConsumer.metrics()``, under the names of Java's share consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..meters import Metrics

if TYPE_CHECKING:
    from .engine import ShareEngine


def share_consumer_metrics(engine: ShareEngine) -> Metrics:
    """What the consumer has counted; times in milliseconds, as in Java."""
    meters = engine.meters
    totals = meters.totals
    return {
        "consumer-share-metrics": {"connection-count": engine.cluster.connection_count},
        "consumer-share-fetch-manager-metrics": {
            "acknowledgements-error-rate": meters.rate("acknowledgements-error-total"),
            "acknowledgements-error-total": totals["acknowledgements-error-total"],
            "acknowledgements-send-rate": meters.rate("acknowledgements-send-total"),
            "acknowledgements-send-total": totals["acknowledgements-send-total"],
            "bytes-consumed-rate": meters.rate("bytes-consumed-total"),
            "bytes-consumed-total": totals["bytes-consumed-total"],
            "fetch-latency-avg": meters.average("fetch-latency") * 1000,
            "fetch-latency-max": meters.most("fetch-latency") * 1000,
            "fetch-rate": meters.rate("fetch-latency-count"),
            "fetch-throttle-time-avg": meters.average("throttle") * 1000,
            "fetch-throttle-time-max": meters.most("throttle") * 1000,
            "fetch-total": totals["fetch-latency-count"],
            "records-consumed-rate": meters.rate("records-consumed-total"),
            "records-consumed-total": totals["records-consumed-total"],
            "records-per-request-avg": meters.average("records-consumed-total", "fetch-latency-count"),
        },
        "consumer-share-coordinator-metrics": {"assigned-partitions": len(engine.assignment)},
    }
