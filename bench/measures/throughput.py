"""Records of 100 B and 1 KiB by the C client, with each codec, acks=1 and acks=all, 4 partitions.

Rates are the client's, which is the limit with most codecs, so the broker's CPU is recorded too.
"""

from __future__ import annotations

from bench import load
from bench.context import Bench
from bench.measures.cpu import loaded, warm_up

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]


def measure(bench: Bench) -> None:
    counts = {100: bench.scaled(1_000_000, 100_000), 1024: bench.scaled(300_000, 50_000)}
    with bench.all_up() as brokers:
        for broker in brokers:
            warm_up(bench, broker, bench.scaled(6_000_000, 200_000))
        for size, records in counts.items():
            for codec in CODECS:
                for _ in range(bench.repeats):
                    for broker in brokers:
                        topic = ""
                        for acks in ("1", "all"):
                            if topic:
                                bench.drop(broker, topic)
                            topic = bench.topic(broker)
                            job = load.Job(
                                "produce", broker.address, topic, records, size, acks=acks, codec=codec
                            )
                            loaded(bench, broker, "throughput", f"{size} B {codec} produce acks={acks}", job)
                        job = load.Job("consume", broker.address, topic, records, size)
                        loaded(bench, broker, "throughput", f"{size} B {codec} consume", job)
                        bench.drop(broker, topic)
