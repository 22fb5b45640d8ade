"""Clusters of three on ZooKeeper: a producer's wait when a leader dies, stops or freezes; start, memory, rate.

The producer is librdkafka's, idempotent, with acks=all and defaults otherwise. It sends a record of 100 B every 2 ms
to one partition with three replicas. The figure is the longest time between two acknowledgements. Acknowledged
records are read back afterwards; if one is lost, the measurement fails.

librdkafka's requests to a frozen leader stay open for ``socket.timeout.ms``, a minute, and an idempotent producer
sends nothing to the next leader before they end. So it is half a second here, to measure the brokers.
"""

from __future__ import annotations

import itertools
import threading
import time

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Message, Producer, TopicPartition
from harness.brokers import Broker

from bench import load, procstat
from bench.clusters import BROKERS, Cluster, running
from bench.context import Bench

_PAUSE = 0.002
_WARM_UP = 3.0
_LIMIT = 90.0
_SHORT_PATIENCE_MS = 500


class Stream:
    """One producer in a thread: records its longest wait between two acknowledgements."""

    def __init__(self, address: str, topic: str, partition: int, patience_ms: int = 60_000) -> None:
        self.longest = 0.0
        self.acked: set[int] = set()
        self.errors: list[KafkaError] = []
        self._topic = topic
        self._partition = partition
        self._last = time.perf_counter()
        self._producer = Producer(
            {
                "bootstrap.servers": address,
                "enable.idempotence": True,
                "linger.ms": 0,
                "socket.timeout.ms": patience_ms,
                "request.timeout.ms": min(30_000, patience_ms),
                "log_level": 0,
            }
        )
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        for number in itertools.count():
            if self._stopping.is_set():
                break
            value = b"%d" % number
            self._producer.produce(
                self._topic, value.ljust(100), partition=self._partition, on_delivery=self._delivered
            )
            self._producer.poll(_PAUSE)
        self._producer.flush(_LIMIT)

    def _delivered(self, error: KafkaError | None, message: Message) -> None:
        if error is not None:
            self.errors.append(error)
            return
        now = time.perf_counter()
        self.longest = max(self.longest, now - self._last)
        self._last = now
        self.acked.add(int(message.value() or b"-1"))

    def wait_for_more(self, count: int = 200) -> None:
        """Wait for this many more acknowledgements. Raises RuntimeError if that takes too long."""
        wanted = len(self.acked) + count
        deadline = time.monotonic() + _LIMIT
        while len(self.acked) < wanted:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nothing more was acknowledged within {_LIMIT:.0f} s")
            time.sleep(0.01)

    def begin(self) -> None:
        """Start counting."""
        self.wait_for_more()
        time.sleep(_WARM_UP)
        self.longest = 0.0

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(2 * _LIMIT)
        if self.errors:
            raise RuntimeError(f"{len(self.errors)} records failed, the first: {self.errors[0]}")


def check(cluster: Cluster, topic: str, partition: int, acked: set[int]) -> None:
    """Raise RuntimeError unless every acknowledged record is there once."""
    consumer = Consumer({"bootstrap.servers": cluster.address, "group.id": "check", "log_level": 0})
    place = TopicPartition(topic, partition, OFFSET_BEGINNING)
    seen: list[int] = []
    try:
        consumer.assign([place])
        deadline = time.monotonic() + _LIMIT
        missing = set(acked)
        while missing and time.monotonic() < deadline:
            values = [int(m.value() or b"-1") for m in consumer.consume(1000, 0.5) if m.error() is None]
            seen += values
            missing.difference_update(values)
    finally:
        consumer.close()
    if missing or len(seen) != len(set(seen)):
        raise RuntimeError(
            f"{len(missing)} acknowledged records are lost, {len(seen) - len(set(seen))} doubled"
        )


def gap(bench: Bench, cluster: Cluster, kind: Broker, what: str, of_controller: bool | None) -> None:
    """Break one leader: the controller or not, by ``of_controller``; None allows either."""
    topic = f"gap-{time.monotonic_ns()}"
    cluster.create(topic, BROKERS)
    controller, leaders = cluster.controller(), cluster.leaders(topic)
    partition = next(
        number
        for number, leader in sorted(leaders.items())
        if of_controller is None or (leader == controller) == of_controller
    )
    leader = leaders[partition]
    stream = Stream(cluster.address, topic, partition, *([_SHORT_PATIENCE_MS] if what == "frozen" else []))
    stream.begin()
    if what == "frozen":
        cluster.freeze(leader, True)
        stream.wait_for_more()
        cluster.freeze(leader, False)
        stream.wait_for_more()
    elif what == "stopped":
        cluster.brokers[leader].stop()
        stream.wait_for_more()
    else:
        cluster.brokers[leader].kill()
        stream.wait_for_more()
    longest = stream.longest
    stream.stop()
    if what != "frozen":
        cluster.brokers[leader].start()
    cluster.wait_in_sync(topic, BROKERS)
    check(cluster, topic, partition, stream.acked)
    cluster.drop(topic)
    names = {
        ("killed", True): "leader and controller killed",
        ("killed", False): "leader killed",
        ("stopped", False): "leader stopped",
        ("frozen", False): "leader frozen",
    }
    bench.add("failover", names[what, bool(of_controller)], "s", "lower", kind, longest)


def measure(bench: Bench) -> None:
    records = bench.scaled(1_500_000, 200_000)
    for kind in bench.kinds:
        with running(kind, bench.folder / f"failover-{kind.name}") as cluster:
            broker = next(iter(cluster.brokers.values()))
            bench.add("failover", "three brokers serve", "s", "lower", broker, cluster.start())
            cluster.create("first", BROKERS)
            time.sleep(3)
            for each in cluster.brokers.values():
                bench.add(
                    "failover", "memory of one, idle", "MB", "lower", each, procstat.resident_mb(each.pid)
                )
            for number in range(1 + bench.repeats):
                topic = f"rate-{number}"
                cluster.create(topic, 4)
                job = load.Job("produce", cluster.address, topic, records, acks="all")
                done = load.run(job)
                # The first round warms up.
                if number:
                    bench.add("failover", "produce acks=all", "rec/s", "higher", broker, done.rate)
                cluster.drop(topic)
            for _ in range(bench.repeats):
                gap(bench, cluster, broker, "killed", True)
                gap(bench, cluster, broker, "killed", False)
                gap(bench, cluster, broker, "stopped", False)
            gap(bench, cluster, broker, "frozen", False)
