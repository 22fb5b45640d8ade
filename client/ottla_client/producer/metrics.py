"""``Producer.metrics()``, under the names of Java's producer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..meters import Metrics

if TYPE_CHECKING:
    from ..cluster import Cluster
    from .accumulator import Accumulator
    from .sender import Sender


def producer_metrics(cluster: Cluster, accumulator: Accumulator, sender: Sender | None) -> Metrics:
    """The producer's counts; times in milliseconds, as in Java."""
    meters, memory = accumulator.meters, accumulator.memory
    totals = meters.totals
    found: Metrics = {
        "producer-metrics": {
            "batch-size-avg": meters.average("byte-total", "batch-total"),
            "buffer-available-bytes": memory.free,
            "buffer-total-bytes": memory.total,
            "connection-count": cluster.connection_count,
            "outgoing-byte-rate": meters.rate("byte-total"),
            "outgoing-byte-total": totals["byte-total"],
            "produce-throttle-time-avg": meters.average("throttle") * 1000,
            "produce-throttle-time-max": meters.most("throttle") * 1000,
            "record-error-rate": meters.rate("record-error-total"),
            "record-error-total": totals["record-error-total"],
            "record-queue-time-avg": meters.average("record-queue-time") * 1000,
            "record-queue-time-max": meters.most("record-queue-time") * 1000,
            "record-retry-rate": meters.rate("record-retry-total"),
            "record-retry-total": totals["record-retry-total"],
            "record-send-rate": meters.rate("record-send-total"),
            "record-send-total": totals["record-send-total"],
            "records-per-request-avg": meters.average("record-send-total", "request-total"),
            "request-latency-avg": meters.average("request-latency") * 1000,
            "request-latency-max": meters.most("request-latency") * 1000,
            "request-rate": meters.rate("request-total"),
            "request-total": totals["request-total"],
            "requests-in-flight": 0 if sender is None else sender.in_flight,
            "waiting-threads": memory.waiting,
        }
    }
    for topic, each in list(accumulator.by_topic.items()):
        found[f"producer-topic-metrics.{topic}"] = {
            "byte-rate": each.rate("byte-total"),
            "byte-total": each.totals["byte-total"],
            "record-error-total": each.totals["record-error-total"],
            "record-retry-total": each.totals["record-retry-total"],
            "record-send-rate": each.rate("record-send-total"),
            "record-send-total": each.totals["record-send-total"],
        }
    return found
