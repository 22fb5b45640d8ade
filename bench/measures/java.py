"""Like ``throughput``, with Kafka's Java tools: ProducerPerformance (batches of 64 KiB) and ConsumerPerformance."""

from __future__ import annotations

from harness import javatools
from harness.brokers import Broker

from bench import procstat
from bench.context import Bench
from bench.measures.cpu import warm_up
from bench.measures.throughput import CODECS


def _one(bench: Bench, broker: Broker, records: int, size: int, codec: str, acks: str) -> None:
    topic = bench.topic(broker)
    label = f"{size} B {codec}"
    start = procstat.cpu_seconds(broker.pid)
    rate = javatools.produce(broker.address, topic, records, size, acks, codec)
    middle = procstat.cpu_seconds(broker.pid)
    bench.add("java", f"{label} produce acks={acks} rate", "rec/s", "higher", broker, rate)
    bench.add(
        "java", f"{label} produce acks={acks} CPU", "s/M", "lower", broker, (middle - start) / records * 1e6
    )
    if acks == "1":
        rate = javatools.consume(broker.address, topic, records)
        spent = procstat.cpu_seconds(broker.pid) - middle
        bench.add("java", f"{label} consume rate", "rec/s", "higher", broker, rate)
        bench.add("java", f"{label} consume CPU", "s/M", "lower", broker, spent / records * 1e6)
    bench.drop(broker, topic)


def measure(bench: Bench) -> None:
    counts = {100: bench.scaled(2_000_000, 200_000), 1024: bench.scaled(400_000, 50_000)}
    codecs = CODECS[:: bench.scaled(1, 4)]
    with bench.all_up() as brokers:
        for broker in brokers:
            warm_up(bench, broker, bench.scaled(6_000_000, 200_000))
        for size, records in counts.items():
            for codec in codecs:
                for _ in range(bench.repeats):
                    for broker in brokers:
                        for acks in ("1", "all"):
                            _one(bench, broker, records, size, codec, acks)
