"""Records of 1 KiB in transactions of 100 and of 1,000, by the C client: rate, and how long a commit takes.

Beside them the same client's idempotent producer, which flushes after as many records: what a transaction costs.
"""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.measures.latency import percentile

RECORDS_OF_1_KIB = 1024


def measure(bench: Bench) -> None:
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for broker in brokers:
                for together, count in ((100, bench.scaled(1000, 100)), (1000, bench.scaled(300, 30))):
                    for kind, label in (("transactions", "in transactions"), ("flushes", "idempotent")):
                        topic = bench.topic(broker, 4)
                        job = load.Job(
                            kind,
                            broker.address,
                            topic,
                            together * count,
                            size=RECORDS_OF_1_KIB,
                            acks="all",
                            together=together,
                        )
                        done = load.run(job)
                        bench.drop(broker, topic)
                        name = f"{label}, {together} together"
                        bench.add("transactions", f"{name}: rate", "rec/s", "higher", broker, done.rate)
                        ordered = sorted(done.latencies_ms)
                        for percent in (50, 99):
                            bench.add(
                                "transactions",
                                f"{name}: p{percent}",
                                "ms",
                                "lower",
                                broker,
                                percentile(ordered, percent),
                            )
