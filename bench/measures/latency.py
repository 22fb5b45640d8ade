"""End-to-end latency, one 100 B record at a time, acks=all: from before it is produced until a consumer has it.

Measured with the C client in one thread, and with Kafka's EndToEndLatency, whose percentiles are whole milliseconds.
"""

from __future__ import annotations

from collections.abc import Sequence

from harness import javatools, maven
from harness.brokers import Broker
from harness.java import Unavailable

from bench import load
from bench.context import Bench


def percentile(ordered: list[float], percent: float) -> float:
    return ordered[min(int(len(ordered) * percent / 100), len(ordered) - 1)]


def add_percentiles(
    bench: Bench,
    measure: str,
    name: str,
    broker: Broker,
    ordered: list[float],
    percents: Sequence[float] = (50, 99),
) -> None:
    """Record percentiles of times in ms, ascending; each takes the place of ``p%`` in the name."""
    for percent in percents:
        value = percentile(ordered, percent)
        bench.add(measure, name.replace("p%", f"p{percent}"), "ms", "lower", broker, value)


def measure(bench: Bench) -> None:
    records = bench.scaled(10_000, 1000)
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for broker in brokers:
                topic = bench.topic(broker, 1)
                job = load.Job("latency", broker.address, topic, records, partitions=1, acks="all")
                ordered = sorted(load.run(job).latencies_ms)
                add_percentiles(bench, "latency", "p%", broker, ordered, (50, 99, 99.9))
                bench.drop(broker, topic)
        try:
            maven.kafka_jars()
        except Unavailable as lack:
            print(f"  EndToEndLatency skipped: {lack}")
            return
        for _ in range(bench.repeats):
            for broker in brokers:
                topic = bench.topic(broker, 1)
                for name, value in javatools.end_to_end(broker.address, topic, records, 100).items():
                    bench.add("latency", f"Java {name}", "ms", "lower", broker, value)
                bench.drop(broker, topic)
