"""A start after SIGKILL with 1 GB that was not flushed: until the broker serves it.

One partition holds 10 million records of 100 B in its first segment, so the recovery point is 0. The broker serves when
its metadata has the partition's leader and a produce to it is acknowledged, at the offset that shows that all records
are there. Neither broker serves other partitions before. The same start with an empty topic is measured too.
"""

from __future__ import annotations

import time

from harness import wire
from harness.brokers import HOST, Broker

from bench import load, procstat
from bench.context import Bench

_PATIENCE = 600.0


def _serving(broker: Broker, topic: str, records: int) -> float:
    """Start the broker; the seconds until it has acknowledged a record at the offset ``records``."""
    broker.spawn()
    broker.wait_until_accepting(_PATIENCE)
    batch = wire.record_batch([bytes(100)])
    deadline = time.perf_counter() + _PATIENCE
    while time.perf_counter() < deadline:
        try:
            connection = wire.Connection(HOST, broker.port)
            while not connection.led({topic: 1}) and time.perf_counter() < deadline:
                time.sleep(0.002)
            error, offset = wire.produced(connection.call(wire.PRODUCE, wire.produce(topic, 0, batch)))
            connection.close()
        except ConnectionError:
            error = wire.LEADER_NOT_AVAILABLE
        if not error:
            if offset != records:
                raise RuntimeError(f"{broker.name} has {offset} of {records} records after its recovery")
            return time.perf_counter() - broker.spawned_at
        time.sleep(0.002)
    raise RuntimeError(f"{broker.name} doesn't serve {topic} after {_PATIENCE:.0f} s")


def measure(bench: Bench) -> None:
    full = bench.scaled(10_000_000, 500_000)
    for _ in range(bench.repeats):
        for kind in bench.kinds:
            for records in (0, full):
                broker = bench.broker(kind)
                try:
                    broker.start()
                    topic = bench.topic(broker, 1, {"segment.bytes": str(2**31 - 1)})
                    if records:
                        load.run(load.Job("produce", broker.address, topic, records, 100, partitions=1))
                    broker.kill()
                    seconds = _serving(broker, topic, records)
                    label = f"{records / 1e7:g} GB not flushed" if records else "nothing to recover"
                    bench.add("recovery", f"{label}: serving", "s", "lower", broker, seconds)
                    if records:
                        spent = procstat.cpu_seconds(broker.pid)
                        bench.add("recovery", f"{label}: CPU", "s", "lower", broker, spent)
                        memory = procstat.resident_mb(broker.pid)
                        bench.add("recovery", f"{label}: memory", "MB", "lower", broker, memory)
                finally:
                    broker.remove()
