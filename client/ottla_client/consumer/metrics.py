"""``Consumer.metrics()``, under the names of Java's consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..meters import Metrics, fetch_metrics

if TYPE_CHECKING:
    from .engine import Engine


def consumer_metrics(engine: Engine) -> Metrics:
    """The consumer's counts; times in milliseconds, as in Java."""
    meters = engine.buffer.meters
    totals = meters.totals
    partitions: Metrics = {}
    lags = []
    states = list(engine.positions)
    for state in states:
        lag = state.lag(read_committed=engine.settings.read_committed)
        if lag is None:
            continue
        lags.append(lag)
        partitions[f"consumer-fetch-manager-metrics.{state.partition.topic}-{state.partition.partition}"] = {
            "records-lag": lag
        }
    return {
        "consumer-metrics": {"connection-count": engine.cluster.connection_count},
        "consumer-fetch-manager-metrics": {
            **fetch_metrics(meters),
            "records-lag-max": max(lags, default=0),
        },
        "consumer-coordinator-metrics": {
            "assigned-partitions": len(states),
            "commit-latency-avg": meters.average("commit-latency") * 1000,
            "commit-latency-max": meters.most("commit-latency") * 1000,
            "commit-rate": meters.rate("commit-latency-count"),
            "commit-total": totals["commit-latency-count"],
        },
        **partitions,
    }
