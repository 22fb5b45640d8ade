"""Client traffic while a cluster's brokers come and go: topics, records, and a producer that never stops."""

from __future__ import annotations

import threading
import time
from collections import Counter
from typing import Any

import confluent_kafka.admin
from confluent_kafka import Consumer, Producer
from tests.support.cluster import Cluster
from tests.support.to_the_end import messages
from tests.support.waiting import wait_for

# Type checkers don't see most of its exports.
admin: Any = confluent_kafka.admin


def create(
    cluster: Cluster,
    topic: str,
    partitions: int = 1,
    replicas: int = 3,
    configs: dict[str, str] | None = None,
) -> None:
    """Create a topic."""
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = admin.NewTopic(topic, partitions, replicas, config=configs or {})
    client.create_topics([new], operation_timeout=60)[topic].result(60)


def produce(cluster: Cluster, topic: str, values: list[str], partition: int = -1) -> None:
    """Send with acks=all, and wait until all records are acknowledged."""
    failures: list[object] = []
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "linger.ms": 1})

    def delivered(error: object, _: object) -> None:
        if error is not None:
            failures.append(error)

    for value in values:
        producer.produce(topic, value, partition=partition, on_delivery=delivered)
    assert producer.flush(60) == 0
    assert not failures, failures[:3]


def consume(
    cluster: Cluster, topic: str, count: int, group: str = "readers", timeout: float = 60.0
) -> list[str]:
    consumer = Consumer(
        {
            "bootstrap.servers": cluster.bootstrap,
            "group.id": group,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
            "session.timeout.ms": 6000,
        }
    )
    found: list[str] = []
    try:
        consumer.subscribe([topic])
        deadline = time.monotonic() + timeout
        while len(found) < count and time.monotonic() < deadline:
            message: Any = consumer.poll(0.2)
            if message is not None and message.error() is None:
                found.append(message.value().decode())
        consumer.commit(asynchronous=False)
    finally:
        consumer.close()
    return found


class Stream:
    """A producer that never stops, its acknowledged values, and its longest wait between two."""

    def __init__(self, cluster: Cluster, topic: str, keys: int = 0, **settings: object) -> None:
        """``keys``: how many keys the records have in turns; 0: none."""
        self.topic = topic
        self.acked: list[str] = []
        self.gap = 0.0
        self._last = time.monotonic()
        self._keys = keys
        self._producer = Producer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 0,
                "delivery.timeout.ms": 60_000,
                **settings,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        # A failed test doesn't stop it.
        cluster.leftovers.append(self.give_up)

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            key = f"k{number % self._keys}" if self._keys else None
            self._producer.produce(self.topic, str(number), key, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0)
            time.sleep(0.01)
        self._producer.flush(60)

    def _delivered(self, error: object, message: Any) -> None:
        if error is None:
            now = time.monotonic()
            self.gap = max(self.gap, now - self._last)
            self._last = now
            self.acked.append(message.value().decode())

    def wait_for_more(self, count: int = 25) -> None:
        """Wait for this many more acknowledgements."""
        target = len(self.acked) + count
        wait_for(lambda: len(self.acked) >= target, f"{count} more acknowledgements", 90)

    def give_up(self) -> None:
        """End it without waiting for acknowledgements, unless :meth:`stop` did."""
        self._stop.set()
        self._producer.purge()
        self._thread.join(90)

    def stop(self) -> list[str]:
        self._stop.set()
        self._thread.join(90)
        assert not self._thread.is_alive()
        return self.acked


def read_all(cluster: Cluster, topic: str) -> list[str]:
    """The values of a topic from its beginning to its end, those of one partition in order."""
    client = admin.AdminClient({"bootstrap.servers": cluster.bootstrap})
    partitions = client.list_topics(topic, timeout=60).topics[topic].partitions
    return [message.value().decode() for message in messages(cluster.bootstrap, topic, partitions)]


def check_all_there(cluster: Cluster, topic: str, acked: list[str]) -> None:
    """Check that everything acknowledged is in the topic, once and in order."""
    found = read_all(cluster, topic)
    expected = set(acked)
    assert not expected.difference(found), f"lost, of {len(acked)}: {sorted(expected.difference(found))[:20]}"
    twice = sorted(value for value, count in Counter(found).items() if count > 1)
    assert not twice, f"there twice: {twice[:20]}"
    assert [value for value in found if value in expected] == acked
