"""Five thousand classic consumers: in one group and in fifty, until stable; heartbeats; a commit each second.

The consumers are :mod:`bench.thousands`'s, in a process of their own, each with its own connection; all connect as
fast as the broker accepts them. A group is stable when every member has an assignment of the same generation. Each
case has new brokers, with Kafka's default of ``group.initial.rebalance.delay.ms``, 3 s. Afterwards all send heartbeats
every 3 s, about 1,700 a second, and then also commit an offset each second.

In a cluster of three brokers one of five thousand leaves, one is killed, and the coordinator is killed: until all
others have a new assignment, or an answer of the next coordinator.
"""

from __future__ import annotations

import time

from harness.brokers import Broker

from bench import clusters, procstat, thousands
from bench.context import Bench
from bench.measures.latency import add_percentiles

PARTITIONS = 100
BEATS, COMMITS = 12.0, 10.0
SESSION_MS = 10_000


def measure(bench: Bench) -> None:
    size = bench.scaled(5_000, 200)
    for groups in (1, 50):
        for repeat in range(bench.repeats):
            with bench.all_up() as brokers:
                for broker in brokers:
                    _one(bench, broker, size, groups, f"load-{repeat}")
    for repeat in range(bench.repeats):
        for kind in bench.kinds:
            with clusters.running(kind, bench.folder / f"members-{kind.name}-{repeat}") as cluster:
                _changes(bench, cluster, size)


def _changes(bench: Bench, cluster: clusters.Cluster, size: int) -> None:
    cluster.start()
    cluster.create("members", PARTITIONS)
    first, *others = cluster.brokers.values()
    by_port = {broker.port: broker for broker in cluster.brokers.values()}
    # One consumer first, to create __consumer_offsets and load code.
    thousands.run(thousands.Job("members", first.port, "members", PARTITIONS, 1, prefix="first"))

    def heard(line: str) -> None:
        if line.startswith("coordinator "):
            by_port[int(line.split()[1])].kill()

    ports = tuple(broker.port for broker in others)
    job = thousands.Job(
        "members", first.port, "members", PARTITIONS, size, beats=4.0, session_ms=SESSION_MS, others=ports
    )
    done = thousands.run(job, heard)
    for name, value in (
        ("one has left, until all others have a new assignment", done.left),
        (f"one is killed, session timeout {SESSION_MS / 1000:g} s, until they have", done.killed),
        ("the coordinator is killed, until all have an answer of the next", done.moved),
    ):
        bench.add("members", f"{size:,} in one group: {name}", "s", "lower", first, value)
    bench.add("members", "members that the next one has join again", "", "lower", first, float(done.expelled))


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
        add_percentiles(bench, "members", f"{size:,} {what} p%", broker, sorted(taken))
    (began, before), (ended, after), *_ = spent
    rate = done.commits_sent / COMMITS
    bench.add("members", "commits a second", "/s", "higher", broker, rate)
    cpu = (after - before) / (ended - began) * 100
    bench.add("members", "broker CPU meanwhile", "%", "lower", broker, cpu)
    bench.add("members", "memory then", "MB", "lower", broker, procstat.resident_mb(broker.pid))
