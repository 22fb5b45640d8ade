"""100 B records by the C client, uncompressed, acks=1, 4 partitions: rates, and broker CPU per million records.

The CPU is read from /proc before and after, so it doesn't depend on the client's speed. Kafka's falls as its JVM
compiles hot code, so millions of records warm up both brokers first; repeats alternate.
"""

from __future__ import annotations

from harness.brokers import Broker

from bench import load, procstat
from bench.context import Bench


def loaded(bench: Bench, broker: Broker, measure: str, label: str, job: load.Job) -> None:
    """Run a job, and record its rate and the broker's CPU per million records."""
    before = procstat.cpu_seconds(broker.pid)
    done = load.run(job)
    spent = procstat.cpu_seconds(broker.pid) - before
    bench.add(measure, f"{label} rate", "rec/s", "higher", broker, done.rate)
    bench.add(measure, f"{label} CPU", "s/M", "lower", broker, spent / done.records * 1e6)


def warm_up(bench: Bench, broker: Broker, records: int, step: int = 2_000_000) -> None:
    """Produce and consume ``records`` of 100 B in temporary topics."""
    for _ in range(0, records, step):
        topic = bench.topic(broker)
        load.run(load.Job("produce", broker.address, topic, min(step, records)))
        load.run(load.Job("consume", broker.address, topic, min(step, records)))
        bench.drop(broker, topic)


def measure(bench: Bench) -> None:
    records = bench.scaled(3_000_000, 500_000)
    with bench.all_up() as brokers:
        for broker in brokers:
            warm_up(bench, broker, bench.scaled(12_000_000, 500_000))
        for _ in range(bench.scaled(2 * bench.repeats - 1, bench.repeats)):
            for broker in brokers:
                topic = bench.topic(broker)
                loaded(bench, broker, "cpu", "produce", load.Job("produce", broker.address, topic, records))
                loaded(bench, broker, "cpu", "consume", load.Job("consume", broker.address, topic, records))
                bench.drop(broker, topic)
