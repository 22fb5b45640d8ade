"""A start after SIGKILL with 1 GB that was not flushed: until the broker serves it.

One partition holds 10 million records of 100 B in its first segment, so the recovery point is 0. The broker serves when
its metadata has the partition's leader and a produce to it is acknowledged, at the offset that shows that all records
are there. Neither broker serves other partitions before. The same start with an empty topic is measured too.

So a recovery can only disturb a cluster: three brokers, one of which is killed and recovers 1 GB. Meanwhile a client
produces a record every 2 ms to a partition that another one leads, and that all three replicate: the delays are those
of its acknowledgements, while nothing happens, and from the start of the killed broker until it is in sync again.
"""

from __future__ import annotations

import time

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from harness import wire
from harness.brokers import HOST, Broker

from bench import load, procstat
from bench.clusters import BROKERS, Cluster, running
from bench.context import Bench
from bench.measures.cleaning import Probe
from bench.measures.latency import add_percentiles

_PATIENCE = 600.0
_ONE_SEGMENT = {"segment.bytes": str(2**31 - 1)}


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
                    topic = bench.topic(broker, 1, _ONE_SEGMENT)
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
    for kind in bench.kinds:
        with running(kind, bench.folder / f"recovery-{kind.name}") as cluster:
            cluster.start()
            for number in range(bench.repeats):
                _disturbed(bench, cluster, full, number)


def _disturbed(bench: Bench, cluster: Cluster, records: int, number: int) -> None:
    probed, large = f"probed-{number}", f"large-{number}"
    cluster.create(probed, 1)
    leader = cluster.leaders(probed)[0]
    victim = next(each for each in cluster.brokers if each not in (leader, cluster.controller()))
    broker = cluster.brokers[victim]
    admin = AdminClient({"bootstrap.servers": cluster.address, "log_level": 0})
    new = NewTopic(large, 1, replica_assignment=[[victim]], config=_ONE_SEGMENT)
    admin.create_topics([new], operation_timeout=30)[large].result(60)
    load.run(load.Job("produce", cluster.address, large, records, 100, partitions=1))
    with Probe(cluster.brokers[leader], probed) as probe:
        quiet = probe.quiet(2)
        broker.kill()
        cluster.wait_in_sync(probed, 1, replicas=BROKERS - 1)
        time.sleep(1)
        probe.take()
        broker.start(_PATIENCE)
        cluster.wait_in_sync(probed, 1, _PATIENCE)
        busy = probe.take()
    add_percentiles(bench, "recovery", "produce p%, quiet", broker, quiet)
    add_percentiles(bench, "recovery", "produce p%, another broker recovers", broker, busy)
    cluster.drop(large)
    cluster.drop(probed)
