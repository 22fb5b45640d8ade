"""A cluster of three with 2,000 partitions of three replicas each: a killed controller, and the CPU when idle.

The figure is the time from SIGKILL until the leaders of all partitions answered a client's ListOffsets. librdkafka
asks each leader, and again after new metadata if that isn't the leader any more.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import suppress

from confluent_kafka import KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._listoffsets import OffsetSpec
from harness.brokers import BrokerFailed

from bench import procstat
from bench.clusters import Cluster, running
from bench.context import Bench

TOPIC = "wide"
# Its annotations are incomplete.
_latest: Callable[[], OffsetSpec] = OffsetSpec.latest
_LIMIT = 180.0
_TRY = 2.0
_IDLE = 10.0


def _all_serve(cluster: Cluster, partitions: int, dead: int) -> float:
    """Return the seconds until every partition's leader has answered, none of which is the killed one."""
    alive = ",".join(broker.address for number, broker in cluster.brokers.items() if number != dead)
    asked = {TopicPartition(TOPIC, number): _latest() for number in range(partitions)}
    admin = AdminClient(
        {"bootstrap.servers": alive, "log_level": 0, "retry.backoff.ms": 20, "retry.backoff.max.ms": 100}
    )
    began = time.perf_counter()
    while time.perf_counter() < began + _LIMIT:
        with suppress(KafkaException):
            for answer in admin.list_offsets(asked, request_timeout=_TRY).values():
                answer.result()
            taken = time.perf_counter() - began
            leaders = {each.leader for each in admin.list_topics(TOPIC).topics[TOPIC].partitions.values()}
            if dead not in leaders and -1 not in leaders:
                return taken
        time.sleep(0.01)
    raise BrokerFailed(f"not all leaders of {partitions} partitions served within {_LIMIT:.0f} s")


def measure(bench: Bench) -> None:
    partitions = bench.scaled(2_000, 200)
    label = f"{partitions:,} x 3: "
    for kind in bench.kinds:
        with running(kind, bench.folder / f"wide-{kind.name}") as cluster:
            cluster.start()
            cluster.create(TOPIC, partitions)
            time.sleep(5)
            before = {each: procstat.cpu_seconds(each.pid) for each in cluster.brokers.values()}
            time.sleep(_IDLE)
            for each, spent in before.items():
                percent = (procstat.cpu_seconds(each.pid) - spent) / _IDLE * 100
                bench.add("wide", label + "idle CPU", "%", "lower", each, percent)
            for _ in range(bench.repeats):
                controller = cluster.controller()
                broker = cluster.brokers[controller]
                broker.kill()
                seconds = _all_serve(cluster, partitions, controller)
                bench.add("wide", label + "controller killed", "s", "lower", broker, seconds)
                broker.start()
                cluster.wait_in_sync(TOPIC, partitions)
