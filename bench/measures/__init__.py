"""The measurements by their names for ``--only``, in running order."""

from __future__ import annotations

from collections.abc import Callable

from bench.context import Bench
from bench.measures import (
    cleaning,
    cli,
    client,
    console,
    conversion,
    cpu,
    failover,
    fetch,
    flood,
    flush,
    group,
    growth,
    java,
    latency,
    memory,
    partitions,
    recovery,
    roundtrip,
    secure,
    share,
    spark,
    start,
    startup,
    throughput,
    transactions,
    wide,
)

MEASURES: dict[str, tuple[str, Callable[[Bench], None]]] = {
    "start": ("process start to first acknowledged produce", start.measure),
    "memory": ("resident memory", memory.measure),
    "cpu": ("C client, 100 B, warmed up: rates and broker CPU a million records", cpu.measure),
    "throughput": ("C client, 100 B and 1 KiB, each codec, acks=1 and all", throughput.measure),
    "java": ("Kafka's Java tools, 100 B and 1 KiB, each codec, acks=1 and all", java.measure),
    "latency": ("end to end, acks=all, one record at a time", latency.measure),
    "transactions": ("C client, 1 KiB, in transactions of 100 and 1,000 records", transactions.measure),
    "fetch": ("cached data handed out, beside a bare sendfile loop", fetch.measure),
    "group": ("a thousand consumers join one group at once", group.measure),
    "growth": (
        "ten consumers, whose topic gets 900 more partitions, in both group protocols",
        growth.measure,
    ),
    "share": (
        "a share group ordered by key: 32 Java consumers, four partitions, 5 ms a record",
        share.measure,
    ),
    "partitions": ("ten thousand partitions: restart, idle CPU, memory", partitions.measure),
    "cleaning": ("compaction: ten records of each key, until clean; produce meanwhile", cleaning.measure),
    "conversion": ("1 GB for a consumer older than 0.11, converted; produce meanwhile", conversion.measure),
    "flush": ("32 producers, an fsync for every acknowledgement", flush.measure),
    "recovery": ("a start after SIGKILL with 1 GB that was not flushed", recovery.measure),
    "client": ("client libraries, 100 B: records a second in and out", client.measure),
    "round": ("client libraries, one record at a time, acks=all", roundtrip.measure),
    "cli": ("ottla produce and consume beside kcat", cli.measure),
    "console": ("ottla console: 1,000 topics and groups, an open page, a filter", console.measure),
    "failover": ("three brokers on ZooKeeper: a leader lost, start, memory, acks=all", failover.measure),
    "wide": ("three brokers, 2,000 partitions: the controller killed, idle CPU", wide.measure),
    "secure": ("TLS 1.3 and SCRAM, C client: rates, broker CPU, end to end", secure.measure_traffic),
    "acls": ("one record a request among ten thousand rules: the broker's CPU", secure.measure_acls),
    "logins": ("a thousand logins at once, and a bystander", secure.measure_logins),
    "flood": ("one client floods while twenty behave, with quotas", flood.measure),
    "spark": ('Spark, local[2]: format("ottla") and landing beside Spark\'s Kafka connector', spark.measure),
    "import": ("import ottla_client in a fresh process", startup.measure_import),
    "fixture": ("a broker inside a test, from nothing", startup.measure_fixture),
}
