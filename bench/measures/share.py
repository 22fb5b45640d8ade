"""A share group ordered by key: 32 of Kafka's Java consumers on four partitions, 5 ms of work for each record.

One process has all members, a thread each. They could work on 32 times 200 records a second. The rate is that of the
time in which all of them work: from when the last one has its first record, until 95 of 100 records are done. An
inversion is a record that comes to a member after a later one of its key. Apache Kafka 3.9 serves no share groups.
"""

from __future__ import annotations

import time

from harness import maven
from harness.brokers import Broker, running
from harness.java import find_java
from harness.share_members import PROGRAM, ShareMembers, Worked

from bench import procstat
from bench.context import Bench
from ottla_client.admin import AlterConfig, ConfigResource, ResourceType
from ottla_client.sync import Admin, Producer

MEMBERS, PARTITIONS, WORK_MS, KEYS = 32, 4, 5, 1_000
_POLL = 20
"""The most records of a poll: a tenth of a second's work."""
_PATIENCE_SECONDS = 600.0


def measure(bench: Bench) -> None:
    records = bench.scaled(192_000, 64_000)
    for kind in bench.kinds:
        if kind.name != "ottla":
            continue
        for _ in range(bench.repeats):
            with running(bench.broker(kind)) as broker:
                _one(bench, broker, records)


def _one(bench: Bench, broker: Broker, records: int) -> None:
    topic = bench.topic(broker, PARTITIONS)
    group = f"group-{topic}"
    with Admin(broker.address) as admin:
        configs = [
            AlterConfig("share.auto.offset.reset", "earliest"),
            AlterConfig("share.key.ordered", "true"),
        ]
        admin.alter_configs({ConfigResource(ResourceType.GROUP, group): configs})
    with Producer(bootstrap_servers=broker.address) as producer:
        for number in range(records // KEYS):
            for key in range(KEYS):
                producer.send(topic, b"%d" % number, key=b"%d" % key)
    libs = maven.kafka_jars(maven.KAFKA_4_VERSION)
    java = [find_java(), "-Xmx512M", "-cp", f"{libs}/*", str(PROGRAM)]
    members = ShareMembers(java, broker.address, group, topic, MEMBERS, WORK_MS, _POLL)
    try:
        spent = procstat.cpu_seconds(broker.pid)
        deadline = time.monotonic() + _PATIENCE_SECONDS
        while len(members.worked) < records:
            if time.monotonic() > deadline:
                raise RuntimeError(
                    f"{len(members.worked)} of {records} records came in {_PATIENCE_SECONDS:.0f} s"
                )
            time.sleep(0.1)
        spent = procstat.cpu_seconds(broker.pid) - spent
    finally:
        members.close()
    worked = sorted(members.worked)
    name = f"{MEMBERS} consumers, {PARTITIONS} partitions, ordered by key"
    rate = _rate(worked)
    bench.add("share", f"{name}: rate", "rec/s", "higher", broker, rate)
    bench.add("share", f"{name}: of 32 x 200/s", "", "higher", broker, rate / (MEMBERS * 1000 / WORK_MS))
    bench.add("share", f"{name}: inversions", "", "lower", broker, _inversions(worked))
    bench.add("share", f"{name}: CPU", "s/M", "lower", broker, spent / records * 1e6)


def _rate(worked: list[Worked]) -> float:
    """Records a second while all members work."""
    first: dict[str, int] = {}
    for each in worked:
        first.setdefault(each.member, each.at)
    if len(first) < MEMBERS:
        raise RuntimeError(f"{len(first)} of {MEMBERS} members got records")
    begin, end = max(first.values()), worked[len(worked) * 95 // 100].at
    return sum(begin <= each.at < end for each in worked) / (end - begin) * 1e9


def _inversions(worked: list[Worked]) -> int:
    found = 0
    newest: dict[str, int] = {}
    for each in worked:
        found += each.number < newest.get(each.key, -1)
        newest[each.key] = max(each.number, newest.get(each.key, -1))
    return found
