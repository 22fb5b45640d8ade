"""Produce with an fsync for every acknowledgement (``flush.messages=1``): 32 producers, one request at a time each.

Each producer has its own connection and sends a batch of one record of 1 KiB when the one before it is acknowledged.
They share one partition, or have one each. Requests are packed by hand in this process, and one thread waits for all.
"""

from __future__ import annotations

import selectors
import socket
import struct
import time
from dataclasses import dataclass, field

from harness import wire
from harness.brokers import HOST, Broker

from bench import procstat
from bench.context import Bench
from bench.measures.latency import add_percentiles

PRODUCERS = 32
_RECORD = 1024
_SIZE = struct.Struct(">i")


@dataclass(slots=True, eq=False)
class _Producer:
    socket: socket.socket
    request: bytes
    began: float = 0.0
    data: bytearray = field(default_factory=bytearray)

    def send(self) -> None:
        self.began = time.perf_counter()
        self.socket.sendall(self.request)

    def receive(self) -> int | None:
        """Take bytes; the answer's error once it is whole. Raises ConnectionError."""
        found = self.socket.recv(4096)
        if not found:
            raise ConnectionError("the broker closed the connection")
        self.data += found
        if len(self.data) < 4 or len(self.data) < 4 + _SIZE.unpack_from(self.data)[0]:
            return None
        error, _ = wire.produced(wire.Reader(self.data, 8))
        self.data.clear()
        return error


def _run(broker: Broker, topic: str, partitions: int, seconds: float) -> tuple[int, list[float]]:
    """Produce for some seconds; how many requests were acknowledged, and the delays in ms, ascending."""
    selector = selectors.DefaultSelector()
    producers = []
    batch = wire.record_batch([bytes(_RECORD)])
    for number in range(PRODUCERS):
        connection = socket.create_connection((HOST, broker.port), 60)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        request = wire.frame(wire.PRODUCE, wire.produce(topic, number % partitions, batch))
        producer = _Producer(connection, request)
        producers.append(producer)
        selector.register(connection, selectors.EVENT_READ, producer)
    delays: list[float] = []
    try:
        end = time.perf_counter() + seconds
        for producer in producers:
            producer.send()
        waiting = PRODUCERS
        while waiting:
            for key, _ in selector.select(60):
                producer = key.data
                error = producer.receive()
                if error is None:
                    continue
                if error == wire.NOT_LEADER_OR_FOLLOWER:
                    # Kafka's metadata has a new partition's leader before the leader knows.
                    producer.send()
                    continue
                if error:
                    raise RuntimeError(f"{broker.name} answered a produce with error {error}")
                now = time.perf_counter()
                delays.append((now - producer.began) * 1000)
                if now < end:
                    producer.send()
                else:
                    waiting -= 1
    finally:
        selector.close()
        for producer in producers:
            producer.socket.close()
    return len(delays), sorted(delays)


def measure(bench: Bench) -> None:
    seconds = bench.scaled(10, 2)
    with bench.all_up() as brokers:
        for _ in range(bench.repeats):
            for partitions in (1, PRODUCERS):
                label = "one partition" if partitions == 1 else f"{partitions} partitions"
                for broker in brokers:
                    topic = bench.topic(broker, partitions, {"flush.messages": "1"})
                    _run(broker, topic, partitions, seconds / 5)
                    spent = procstat.cpu_seconds(broker.pid)
                    count, delays = _run(broker, topic, partitions, seconds)
                    spent = procstat.cpu_seconds(broker.pid) - spent
                    bench.add("flush", f"{label}: rate", "/s", "higher", broker, count / seconds)
                    add_percentiles(bench, "flush", f"{label}: p%", broker, delays)
                    milliseconds = spent / count * 1000
                    bench.add("flush", f"{label}: CPU of a request", "ms", "lower", broker, milliseconds)
                    bench.drop(broker, topic)
