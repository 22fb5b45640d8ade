"""Resident memory: idle (three seconds after the first acknowledged record), and after 100 B records."""

from __future__ import annotations

import time

from bench import load, procstat
from bench.context import Bench
from bench.measures.start import first_ack


def measure(bench: Bench) -> None:
    records = bench.scaled(4_000_000, 500_000)
    for _ in range(bench.repeats):
        for kind in bench.kinds:
            broker = bench.broker(kind)
            try:
                first_ack(broker, "first")
                time.sleep(3)
                bench.add("memory", "idle", "MB", "lower", broker, procstat.resident_mb(broker.pid))
                topic = bench.topic(broker)
                load.run(load.Job("produce", broker.address, topic, records))
                load.run(load.Job("consume", broker.address, topic, records))
                bench.add("memory", "after load", "MB", "lower", broker, procstat.resident_mb(broker.pid))
            finally:
                broker.remove()
