"""Ten consumers whose topic grows from 100 to 1,000 partitions: time until each new partition has a consumer.

The consumers are confluent-kafka's, in threads of this process. In the classic protocol (cooperative-sticky, the
default heartbeat interval of 3 s, metadata asked for every second) a consumer notices the new partitions and assigns
them. In the consumer protocol (KIP-848) the broker does, and consumers hear of it with their heartbeats, whose interval
is the broker's default. A figure of its own is the number of partitions that consumers had to stop reading although
they keep them.
"""

from __future__ import annotations

import threading
import time
from typing import Any

from harness.brokers import Broker, Ottla

from bench.context import Bench

CONSUMERS = 10
BEFORE, AFTER = 100, 1_000
SECONDS = 180.0
SETTINGS = {"group.initial.rebalance.delay.ms": "0"}


class _Consumer(threading.Thread):
    """A consumer that polls, and counts its partitions and those that it had to give up."""

    def __init__(self, config: dict[str, Any], topic: str) -> None:
        super().__init__(daemon=True)
        self.partitions: frozenset[int] = frozenset()
        self.given_up = 0
        self._config = config
        self._topic = topic
        self._stopping = threading.Event()

    def run(self) -> None:
        import confluent_kafka as ck

        consumer = ck.Consumer(self._config)

        def taken(_: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
            consumer.incremental_assign(partitions)

        def gone(_: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
            self.given_up += len(partitions)
            consumer.incremental_unassign(partitions)

        consumer.subscribe([self._topic], on_assign=taken, on_revoke=gone, on_lost=gone)
        while not self._stopping.is_set():
            consumer.poll(0.02)
            self.partitions = frozenset(each.partition for each in consumer.assignment())
        consumer.close()

    def stop(self) -> None:
        self._stopping.set()


def measure(bench: Bench) -> None:
    with bench.all_up(SETTINGS) as brokers:
        for index in range(bench.repeats):
            for broker in brokers:
                _one(bench, broker, "classic", index)
                if isinstance(broker, Ottla):
                    _one(bench, broker, "consumer", index)


def _one(bench: Bench, broker: Broker, protocol: str, index: int) -> None:
    from confluent_kafka.admin import AdminClient, NewPartitions

    after = bench.scaled(AFTER, 300)
    topic = bench.topic(broker, BEFORE)
    config: dict[str, Any] = {
        "bootstrap.servers": broker.address,
        "group.id": f"bench-growth-{protocol}-{index}",
        "topic.metadata.refresh.interval.ms": 1000,
        "log_level": 3,
    }
    if protocol == "consumer":
        config["group.protocol"] = "consumer"
    else:
        config["partition.assignment.strategy"] = "cooperative-sticky"
    consumers = [_Consumer(config, topic) for _ in range(CONSUMERS)]
    for consumer in consumers:
        consumer.start()
    try:
        _until_shared(consumers, BEFORE)
        for consumer in consumers:
            consumer.given_up = 0
        admin = AdminClient({"bootstrap.servers": broker.address})
        admin.create_partitions([NewPartitions(topic, after)])[topic].result()
        began = time.perf_counter()
        _until_shared(consumers, after)
        seconds = time.perf_counter() - began
        given_up = float(sum(consumer.given_up for consumer in consumers))
    finally:
        for consumer in consumers:
            consumer.stop()
        for consumer in consumers:
            consumer.join(60)
    gained = f"{after - BEFORE} partitions for {CONSUMERS} consumers"
    bench.add("growth", f"{gained}, {protocol}", "s", "lower", broker, seconds)
    bench.add("growth", f"partitions given up meanwhile, {protocol}", "", "lower", broker, given_up)
    bench.drop(broker, topic)


def _until_shared(consumers: list[_Consumer], partitions: int) -> None:
    """Wait until each partition has one consumer, and each consumer as many as any other, or one fewer."""
    deadline = time.perf_counter() + SECONDS
    while True:
        sizes = [len(consumer.partitions) for consumer in consumers]
        everything = frozenset().union(*(consumer.partitions for consumer in consumers))
        if sum(sizes) == len(everything) == partitions and max(sizes) - min(sizes) <= 1:
            return
        if time.perf_counter() > deadline:
            raise RuntimeError(
                f"{len(everything)} of {partitions} partitions had a consumer after {SECONDS:.0f} s"
            )
        time.sleep(0.01)
