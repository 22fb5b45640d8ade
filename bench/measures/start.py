"""From the start of the process to the first acknowledged produce.

A client polls the port every millisecond, asks for the topic's leader, and sends one record with acks=1 until it is
acknowledged. It runs twice: on a folder that has the topic, as after a restart, and on a new one, which creates the
topic. Files are warm, because each broker was started before.
"""

from __future__ import annotations

import time
from contextlib import suppress

from harness import wire
from harness.brokers import HOST, Broker

from bench.context import Bench


def first_ack(broker: Broker, topic: str, timeout: float = 120.0) -> float:
    """Start the broker. Returns the seconds until a record is acknowledged."""
    request = wire.produce(topic, 0, wire.record_batch([b"first"]), acks=1)
    broker.spawn()
    deadline = broker.spawned_at + timeout
    while time.perf_counter() < deadline:
        broker.check_alive()
        with suppress(ConnectionError):
            connection = wire.Connection(HOST, broker.port)
            try:
                while time.perf_counter() < deadline:
                    found = wire.leaders(connection.call(wire.METADATA, wire.metadata([topic])))
                    if found.get(topic) and found[topic][0] >= 0:
                        error, _ = wire.produced(connection.call(wire.PRODUCE, request))
                        if not error:
                            return time.perf_counter() - broker.spawned_at
                    time.sleep(0.001)
            finally:
                connection.close()
        time.sleep(0.001)
    raise RuntimeError(f"{broker.name} acknowledged nothing within {timeout:.0f} s\n{broker.tail()}")


def measure(bench: Bench) -> None:
    repeats = bench.scaled(7, 3)
    existing = [bench.broker(kind) for kind in bench.kinds]
    try:
        for broker in existing:
            first_ack(broker, "first")
            broker.stop()
        for _ in range(repeats):
            for broker in existing:
                bench.add("start", "existing folder", "s", "lower", broker, first_ack(broker, "first"))
                bench.add("start", "SIGTERM to gone", "s", "lower", broker, broker.stop())
    finally:
        for broker in existing:
            broker.remove()
    for _ in range(repeats):
        for kind in bench.kinds:
            broker = bench.broker(kind)
            try:
                bench.add("start", "new folder", "s", "lower", broker, first_ack(broker, "first"))
            finally:
                broker.remove()
