"""The log cleaner: records of 100 B with random keys, each key ten times, until the topic is clean.

The topic is filled with ``cleanup.policy=delete``. Then the policy becomes ``compact``, and the clock runs until
``cleaner-offset-checkpoint`` has reached the active segment. Both brokers look for work every 100 ms. A client produces
a record every 2 ms to another topic, before and while the broker cleans: the delays are those of its acknowledgements.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Self

from confluent_kafka import Producer
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
)
from harness.brokers import Broker

from bench import load, procstat
from bench.context import Bench
from bench.measures.latency import add_percentiles

_SETTINGS = {"log.cleaner.backoff.ms": "100"}
_PATIENCE = 900.0


class Probe:
    """Produces a record every 2 ms in a thread, and measures how long each acknowledgement takes."""

    def __init__(self, broker: Broker, topic: str) -> None:
        self._producer = Producer(
            {"bootstrap.servers": broker.address, "linger.ms": 0, "acks": "all", "log_level": 0}
        )
        self._topic = topic
        self._stopping = threading.Event()
        self._taken: list[float] = []
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        value = bytes(100)
        while not self._stopping.wait(0.002):
            began = time.perf_counter()
            self._producer.produce(self._topic, value, partition=0)
            self._producer.flush(30)
            self._taken.append((time.perf_counter() - began) * 1000)

    def take(self) -> list[float]:
        """The delays in ms since the last call, ascending."""
        taken, self._taken = self._taken, []
        return sorted(taken)

    def quiet(self, warm_up: float = 1) -> list[float]:
        """The delays of five seconds, after so many seconds that don't count."""
        time.sleep(warm_up)
        self.take()
        time.sleep(5)
        return self.take()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        self._producer.close()


def _alter(broker: Broker, topic: str, configs: dict[str, str]) -> None:
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in configs.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = AdminClient({"bootstrap.servers": broker.address})
    for done in admin.incremental_alter_configs([resource]).values():
        done.result(30)


def _active_base(folder: Path) -> int:
    return max(int(path.stem) for path in folder.glob("*.log"))


def _clean_below(data: Path, topic: str) -> int:
    """The checkpoint of partition 0; -1 without one. Lines after the count are topic, partition, offset."""
    try:
        lines = (data / "cleaner-offset-checkpoint").read_text().splitlines()
    except FileNotFoundError:
        return -1
    found = [int(line.split()[2]) for line in lines[2:] if line.split()[:2] == [topic, "0"]]
    return found[0] if found else -1


def _wait_clean(broker: Broker, topic: str) -> None:
    folder = broker.data / f"{topic}-0"
    deadline = time.perf_counter() + _PATIENCE
    while _clean_below(broker.data, topic) < _active_base(folder):
        broker.check_alive()
        if time.perf_counter() > deadline:
            raise RuntimeError(f"{broker.name} has not cleaned {topic} in {_PATIENCE:.0f} s")
        time.sleep(0.01)


def measure(bench: Bench) -> None:
    records = bench.scaled(10_000_000, 500_000)
    label = f"{records // 1_000_000} M records" if records >= 1_000_000 else f"{records // 1000} k records"
    configs = {"segment.bytes": str(bench.scaled(256 << 20, 10 << 20)), "cleanup.policy": "delete"}
    with bench.all_up(_SETTINGS) as brokers:
        for _ in range(bench.repeats):
            for broker in brokers:
                topic, other = bench.topic(broker, 1, configs), bench.topic(broker, 1)
                job = load.Job(
                    "produce", broker.address, topic, records, partitions=1, keys=records // 10, size=84
                )
                load.run(job)
                with Probe(broker, other) as probe:
                    quiet = probe.quiet()
                    spent = procstat.cpu_seconds(broker.pid)
                    began = time.perf_counter()
                    _alter(broker, topic, {"cleanup.policy": "compact"})
                    _wait_clean(broker, topic)
                    seconds = time.perf_counter() - began
                    busy = probe.take()
                    spent = procstat.cpu_seconds(broker.pid) - spent
                bench.add("cleaning", f"{label} until clean", "s", "lower", broker, seconds)
                bench.add("cleaning", f"{label}, CPU", "s", "lower", broker, spent)
                memory = procstat.resident_mb(broker.pid)
                bench.add("cleaning", "memory afterwards", "MB", "lower", broker, memory)
                add_percentiles(bench, "cleaning", "produce p%, quiet", broker, quiet)
                add_percentiles(bench, "cleaning", "produce p%, cleaning", broker, busy)
                bench.drop(broker, topic)
                bench.drop(broker, other)
