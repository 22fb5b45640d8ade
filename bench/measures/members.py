"""Five thousand classic consumers: in one group and in fifty, until stable; heartbeats; a commit each second.

The consumers are :mod:`bench.thousands`'s, in a process of their own, each with its own connection; all connect as
fast as the broker accepts them. A group is stable when every member has an assignment of the same generation. Each
case has new brokers, with Kafka's default of ``group.initial.rebalance.delay.ms``, 3 s. Afterwards all send heartbeats
every 3 s, about 1,700 a second, and then also commit an offset each second.
"""

from __future__ import annotations

import time

from harness.brokers import Broker

from bench import procstat, thousands
from bench.context import Bench
from bench.measures.latency import percentile

PARTITIONS = 100
BEATS, COMMITS = 12.0, 10.0


def measure(bench: Bench) -> None:
    size = bench.scaled(5_000, 200)
    for groups in (1, 50):
        for repeat in range(bench.repeats):
            with bench.all_up() as brokers:
                for broker in brokers:
                    _one(bench, broker, size, groups, f"load-{repeat}")


def _one(bench: Bench, broker: Broker, size: int, groups: int, prefix: str) -> None:
    topic = bench.topic(broker, PARTITIONS)
    # One consumer first, to create __consumer_offsets and load code.
    thousands.run(thousands.Job("members", broker.port, topic, PARTITIONS, 1, prefix=f"{prefix}-first"))
    spent: list[tuple[float, float]] = []

    def heard(_: str) -> None:
        spent.append((time.perf_counter(), procstat.cpu_seconds(broker.pid)))

    beats, commits = (BEATS, COMMITS) if groups == 1 else (0.0, 0.0)
    job = thousands.Job("members", broker.port, topic, PARTITIONS, size, groups, beats, commits, prefix)
    done = thousands.run(job, heard)
    where = "one group" if groups == 1 else f"{groups} groups"
    bench.add("members", f"{size:,} in {where}: connected", "s", "lower", broker, done.connected)
    bench.add("members", f"{size:,} in {where}: stable", "s", "lower", broker, done.stable)
    if groups > 1:
        return
    for what, taken in (("heartbeats", done.heartbeats_ms), ("commits", done.commits_ms)):
        for percent in (50, 99):
            value = percentile(sorted(taken), percent)
            bench.add("members", f"{size:,} {what} p{percent}", "ms", "lower", broker, value)
    (began, before), (ended, after), *_ = spent
    rate = done.commits_sent / COMMITS
    bench.add("members", "commits a second", "/s", "higher", broker, rate)
    cpu = (after - before) / (ended - began) * 100
    bench.add("members", "broker CPU meanwhile", "%", "lower", broker, cpu)
    bench.add("members", "memory then", "MB", "lower", broker, procstat.resident_mb(broker.pid))
