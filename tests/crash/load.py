"""Producers whose broker is killed, and the check that acknowledged records are kept.

A producer writes, for each of its keys, the numbers 0, 1, 2 … in that order, with acks=all. What the broker has
acknowledged must be found where it was said to be, however often the broker is killed:

- an acknowledged record stands at the partition and offset of its acknowledgement (nothing lost, nothing moved);
- the numbers of a key never go back (order); a plain producer may repeat one that it sent again;
- an idempotent producer's number stands in the log once (nothing doubled).
"""

from __future__ import annotations

import itertools
import threading
import time
from collections import defaultdict
from typing import TYPE_CHECKING, NamedTuple

import confluent_kafka as ck
from tests.support.waiting import wait_for

if TYPE_CHECKING:
    import random

    from tests.clients.kits import Got
    from tests.support.processes import BrokerProcess

# A client that reconnects soon after a restart.
EAGER = {"reconnect.backoff.ms": 10, "reconnect.backoff.max.ms": 100, "retry.backoff.ms": 20, "log_level": 2}


class Acked(NamedTuple):
    """A record that the broker has acknowledged."""

    key: bytes
    number: int
    partition: int
    offset: int


class Load:
    """One producer in its own thread, which writes until it is stopped."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, name: str, idempotent: bool) -> None:
        self.topic = topic
        self.name = name
        self.idempotent = idempotent
        self.acked: list[Acked] = []
        self.errors: list[str] = []
        self._partitions = partitions
        self._stopping = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": idempotent,
                # A plain producer that retries keeps its order only with one request in flight.
                "max.in.flight": 5 if idempotent else 1,
                "linger.ms": 2,
                "batch.num.messages": 50,
                "delivery.timeout.ms": 90_000,
                "request.timeout.ms": 5_000,
                "compression.type": "lz4" if idempotent else "none",
                **EAGER,
            },
            error_cb=self._failed,
        )
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._thread.start()

    def _failed(self, error: ck.KafkaError) -> None:
        if error.fatal():
            self.errors.append(f"{self.name}: fatal: {error}")

    def _run(self) -> None:
        for number in itertools.count():
            for index in range(6):
                key = f"{self.name}-{index}".encode()
                self._produce(key, number, index % self._partitions)
            self._producer.poll(0)
            if self._stopping.is_set():
                return
            # Some records are always in flight when the broker dies, but few enough to resend quickly.
            while len(self._producer) > 300:
                self._producer.poll(0.02)
            time.sleep(0.002)

    def _produce(self, key: bytes, number: int, partition: int) -> None:
        def delivered(error: ck.KafkaError | None, message: ck.Message) -> None:
            if error is None:
                self.acked.append(Acked(key, number, partition, message.offset()))
            else:
                self.errors.append(f"{self.name}: {error}")

        value = b"%d" % number
        while True:
            try:
                self._producer.produce(self.topic, value, key, partition, on_delivery=delivered)
                return
            except BufferError:
                self._producer.poll(0.05)

    def stop(self) -> None:
        """Stop, and wait until the broker has answered everything."""
        self._stopping.set()
        self._thread.join(60)
        left = self._producer.flush(60)
        assert not self._thread.is_alive()
        assert not left, f"{self.name}: {left} records were never answered"
        assert not self.errors, self.errors[:5]


def kill_under_load(broker: BrokerProcess, loads: list[Load], chance: random.Random) -> None:
    """Kill the broker a moment after each producer has an acknowledged record."""
    before = [len(load.acked) for load in loads]
    wait_for(
        lambda: all(len(load.acked) > count for load, count in zip(loads, before, strict=True)),
        "all producers to get on",
        timeout=60,
    )
    time.sleep(chance.uniform(0.0, 0.5))
    broker.kill()


def check(loads: list[Load], got: list[Got]) -> None:
    """Compare the topic's records with the acknowledged ones."""
    at = {(one.partition, one.offset): one for one in got}
    numbers: dict[bytes, list[int]] = defaultdict(list)
    for one in got:
        numbers[one.key or b""].append(int(one.value or b"-1"))
    for load in loads:
        assert load.acked, f"{load.name} got nothing acknowledged"
        lost = [a for a in load.acked if (a.partition, a.offset) not in at]
        assert not lost, f"{len(lost)} acknowledged records of {load.name} are lost, the first: {lost[0]}"
        for a in load.acked:
            found = at[a.partition, a.offset]
            assert (found.key, found.value) == (a.key, b"%d" % a.number), f"{a} has become {found}"
        for key, seen in numbers.items():
            if not key.startswith(load.name.encode() + b"-"):
                continue
            if load.idempotent:
                assert len(seen) == len(set(seen)), f"{key!r}: doubled: {doubled(seen)[:10]}"
                assert seen == list(range(len(seen))), f"{key!r}: out of order or with a gap"
            else:
                first = list(dict.fromkeys(seen))
                assert first == sorted(first), f"{key!r}: out of order"


def doubled(seen: list[int]) -> list[int]:
    """The numbers that occur more than once."""
    return [number for number in set(seen) if seen.count(number) > 1]
