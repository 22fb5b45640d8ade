"""``ShareConsumer.metrics()``, under the names of Java's share consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..meters import Metrics, fetch_metrics

if TYPE_CHECKING:
    from .engine import ShareEngine


def share_consumer_metrics(engine: ShareEngine) -> Metrics:
    """The consumer's counts; times in milliseconds, as in Java."""
    meters = engine.meters
    totals = meters.totals
    return {
        "consumer-share-metrics": {"connection-count": engine.cluster.connection_count},
        "consumer-share-fetch-manager-metrics": {
            "acknowledgements-error-rate": meters.rate("acknowledgements-error-total"),
            "acknowledgements-error-total": totals["acknowledgements-error-total"],
            "acknowledgements-send-rate": meters.rate("acknowledgements-send-total"),
            "acknowledgements-send-total": totals["acknowledgements-send-total"],
            **fetch_metrics(meters),
        },
        "consumer-share-coordinator-metrics": {"assigned-partitions": len(engine.assignment)},
    }
