"""One record of 100 B at a time, acks=all, no linger: until it is acknowledged, and until a consumer has it."""

from __future__ import annotations

from bench import clients
from bench.context import Bench
from bench.measures.latency import percentile


def measure(bench: Bench) -> None:
    records = bench.scaled(5000, 500)
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for name in clients.ROUND:
                for broker in brokers:
                    topic = bench.topic(broker, 1)
                    done = clients.run(name, clients.Job(broker.address, topic, records, partitions=1))
                    ordered = sorted(done.latencies_ms)
                    for percent in (50, 99):
                        value = percentile(ordered, percent)
                        bench.add("round", f"{name}: p{percent}", "ms", "lower", broker, value)
                    bench.drop(broker, topic)
