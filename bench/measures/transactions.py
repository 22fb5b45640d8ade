"""Records of 1 KiB in transactions of 100 and of 1,000: rate, and how long a commit takes.

Beside them the same client's idempotent producer, which flushes after as many records: what a transaction costs. Both
take turns of 20, since the machine's speed changes more than that. The C client waits for a timer of one millisecond
before it adds partitions to a transaction; ``ottla_client`` doesn't.
"""

from __future__ import annotations

from harness.brokers import Broker

from bench import load
from bench.context import Bench
from bench.measures.latency import percentile

RECORDS_OF_1_KIB = 1024
KINDS = {
    "transactions": ("in transactions", "idempotent"),
    "own transactions": ("ottla_client, in transactions", "ottla_client, idempotent"),
}


def measure(bench: Bench) -> None:
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for broker in brokers:
                for together, count in ((100, bench.scaled(1000, 100)), (1000, bench.scaled(300, 40))):
                    for kind in KINDS:
                        _one(bench, broker, kind, together, together * count)


def _one(bench: Bench, broker: Broker, kind: str, together: int, records: int) -> None:
    topic = bench.topic(broker, 4)
    size = RECORDS_OF_1_KIB
    done = load.run(load.Job(kind, broker.address, topic, records, size=size, acks="all", together=together))
    bench.drop(broker, topic)
    assert done.flushes is not None
    for each, its in zip((done, done.flushes), KINDS[kind], strict=True):
        name = f"{its}, {together} together"
        bench.add("transactions", f"{name}: rate", "rec/s", "higher", broker, each.rate)
        ordered = sorted(each.latencies_ms)
        for percent in (50, 99):
            value = percentile(ordered, percent)
            bench.add("transactions", f"{name}: p{percent}", "ms", "lower", broker, value)
