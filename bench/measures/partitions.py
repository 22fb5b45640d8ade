"""Many partitions on one broker: the restart, until metadata has a leader for each, and the CPU when idle.

Restarts follow a clean stop, and SIGKILL. Idle CPU is that of ten seconds, beginning five seconds after the restart,
as a share of one core.
"""

from __future__ import annotations

import time
from contextlib import suppress

from harness import wire
from harness.brokers import HOST, Broker, Ottla

from bench import procstat
from bench.context import Bench

TOPICS = 10
_PATIENCE = 900.0


def _ready(broker: Broker, topics: dict[str, int]) -> float:
    """Start the broker. Returns the seconds until it reports a leader for every partition."""
    broker.spawn()
    while True:
        broker.wait_until_accepting(timeout=_PATIENCE)
        with suppress(ConnectionError):
            connection = wire.Connection(HOST, broker.port)
            while not connection.led(topics):
                time.sleep(0.01)
            connection.close()
            return time.perf_counter() - broker.spawned_at


def measure(bench: Bench) -> None:
    count = bench.scaled(10_000, 1000)
    topics = {f"wide-{number}": count // TOPICS for number in range(TOPICS)}
    label = f"{count:,}: "
    for kind in bench.kinds:
        broker = bench.broker(kind)
        try:
            broker.start()
            began = time.perf_counter()
            for name, partitions in topics.items():
                connection = wire.Connection(HOST, broker.port)
                connection.create(name, partitions)
                connection.close()
            bench.add("partitions", label + "create", "s", "lower", broker, time.perf_counter() - began)
            broker.stop(_PATIENCE)
            # The bars concern only Ottla, and Kafka takes minutes, so measure it once.
            for _ in range(bench.repeats if kind is Ottla else 1):
                bench.add("partitions", label + "restart", "s", "lower", broker, _ready(broker, topics))
                time.sleep(5)
                before = procstat.cpu_seconds(broker.pid)
                time.sleep(10)
                percent = (procstat.cpu_seconds(broker.pid) - before) * 10
                bench.add("partitions", label + "idle CPU", "%", "lower", broker, percent)
                bench.add(
                    "partitions", label + "memory", "MB", "lower", broker, procstat.resident_mb(broker.pid)
                )
                bench.add("partitions", label + "stop", "s", "lower", broker, broker.stop(_PATIENCE))
            _ready(broker, topics)
            broker.kill()
            seconds = _ready(broker, topics)
            bench.add("partitions", label + "restart after SIGKILL", "s", "lower", broker, seconds)
        finally:
            broker.remove()
