"""Five thousand consumers of the coordinator designed in 2012, in one group, until all fetchers are started.

The consumers are :mod:`bench.thousands`'s, in a process of their own; all connect at once. Then one closes its
connection and one falls silent: until all others have started their fetchers again. Kafka has no such coordinator.
"""

from __future__ import annotations

from harness.brokers import Broker, Ottla, running
from harness.ports import free_port

from bench import procstat, thousands
from bench.context import Bench

PARTITIONS = 1_000
SESSION_MS = 6_000
STAY = 5.0


def measure(bench: Bench) -> None:
    if Ottla not in bench.kinds:
        return
    size = bench.scaled(5_000, 200)
    for _ in range(bench.repeats):
        port = free_port()
        with running(bench.broker(Ottla, {"coordinator.listener": f"127.0.0.1:{port}"})) as broker:
            _one(bench, broker, port, size)


def _one(bench: Bench, broker: Broker, port: int, size: int) -> None:
    topic = bench.topic(broker, PARTITIONS)
    memory: list[float] = []
    before = procstat.cpu_seconds(broker.pid)
    job = thousands.Job("push", port, topic, PARTITIONS, size, beats=STAY, session_ms=SESSION_MS)
    done = thousands.run(job, lambda _: memory.append(procstat.resident_mb(broker.pid)))
    for name, value in (
        ("registered", done.connected),
        ("all fetchers started", done.stable),
        ("again after one has closed its connection", done.closed),
        (f"again after one is silent, session timeout {SESSION_MS / 1000:g} s", done.silent),
    ):
        bench.add("push", f"{size:,}: {name}", "s", "lower", broker, value)
    bench.add("push", "memory", "MB", "lower", broker, max(memory))
    bench.add("push", "broker CPU in all", "s", "lower", broker, procstat.cpu_seconds(broker.pid) - before)
