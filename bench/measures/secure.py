"""Traffic over TLS 1.3 with SCRAM, what ACLs cost, and a thousand logins at once."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from functools import partial
from statistics import median
from time import perf_counter
from typing import Any

from harness.brokers import HOST

from bench import load, procstat
from bench.context import Bench
from bench.measures.cpu import loaded
from bench.measures.latency import add_percentiles, percentile
from bench.secured import Secured, all_secured
from ottla_client.admin import (
    AclBinding,
    AclEntry,
    AclOperation,
    AclPermission,
    AclResource,
    PatternType,
    ResourcePattern,
)
from ottla_client.connection import Connection
from ottla_client.login import login_of
from ottla_client.settings import ConnectionSettings
from ottla_client.sync import Admin

_RULES_A_REQUEST = 500
_PATIENCE = 120.0


def measure_traffic(bench: Bench) -> None:
    """Records of 100 B and 1 KiB, as ``throughput`` does without TLS, and end to end, as ``latency`` does."""
    counts = {100: bench.scaled(1_000_000, 100_000), 1024: bench.scaled(300_000, 50_000)}
    trips = bench.scaled(5_000, 500)
    with all_secured(bench) as brokers:
        users = {each.broker.name: each.add_user("root") for each in brokers}
        for each in brokers:
            _traffic(bench, each, users[each.broker.name], 100, bench.scaled(2_000_000, 50_000), None)
        for _ in range(bench.repeats):
            for each in brokers:
                options = users[each.broker.name]
                for size, records in counts.items():
                    _traffic(bench, each, options, size, records, f"{size} B over TLS")
                topic = bench.topic(each.broker, 1)
                job = load.Job(
                    "latency", each.address, topic, trips, partitions=1, acks="all", options=options
                )
                ordered = sorted(load.run(job).latencies_ms)
                add_percentiles(bench, "secure", "end to end over TLS p%", each.broker, ordered)
                bench.drop(each.broker, topic)


def _traffic(
    bench: Bench, each: Secured, options: dict[str, str], size: int, records: int, label: str | None
) -> None:
    """Produce and consume; without a label, to warm up."""
    topic = bench.topic(each.broker)
    for kind in ("produce", "consume"):
        job = load.Job(kind, each.address, topic, records, size, options=options)
        if label is None:
            load.run(job)
        else:
            loaded(bench, each.broker, "secure", f"{label} {kind}", job)
    bench.drop(each.broker, topic)


def measure_acls(bench: Bench) -> None:
    """One record a request: the broker's CPU with a super user, and with a user among ten thousand rules."""
    rules = bench.scaled(10_000, 1_000)
    requests = bench.scaled(5_000, 1_000)
    with all_secured(bench) as brokers:
        for each in brokers:
            topic = bench.topic(each.broker)
            users = {"super user": each.add_user("root"), f"{rules} rules": each.add_user("alice")}
            _add_rules(each, topic, rules)
            spent: dict[str, list[float]] = {who: [] for who in users}
            # In turns: the CPU of a request differs by more than the rules' from one second to the next.
            for _ in range(bench.scaled(6 * bench.repeats, 1)):
                for who, options in users.items():
                    before = procstat.cpu_seconds(each.broker.pid)
                    job = load.Job(
                        "flushes", each.address, topic, requests, acks="all", together=1, options=options
                    )
                    load.run(job)
                    spent[who].append((procstat.cpu_seconds(each.broker.pid) - before) / requests * 1e6)
                    name = f"{who}: CPU a million requests"
                    bench.add("acls", name, "s/M", "lower", each.broker, spent[who][-1])
            least, most = map(median, spent.values())
            share = max(0.0, 1 - least / most) * 100
            bench.add("acls", f"share of {rules} rules in the CPU", "%", "lower", each.broker, share)


def _add_rules(each: Secured, topic: str, count: int) -> None:
    """Rules for many users and topics; ``alice`` may write to prefixes, and one of them is the topic's."""
    bindings = [
        _rule(f"user-{number % 500}", f"topic-{number}", PatternType.LITERAL) for number in range(count // 2)
    ]
    bindings += [_rule("alice", f"prefix-{number}", PatternType.PREFIXED) for number in range(count // 2)]
    bindings.append(_rule("alice", topic, PatternType.PREFIXED))
    with Admin(each.broker.address, default_api_timeout_ms=60_000) as admin:
        for start in range(0, len(bindings), _RULES_A_REQUEST):
            admin.create_acls(bindings[start : start + _RULES_A_REQUEST])


def _rule(user: str, topic: str, pattern: PatternType) -> AclBinding:
    return AclBinding(
        ResourcePattern(AclResource.TOPIC, topic, pattern),
        AclEntry(f"User:{user}", "*", AclOperation.WRITE, AclPermission.ALLOW),
    )


def measure_logins(bench: Bench) -> None:
    """A thousand clients log in at once by SCRAM over TLS; meanwhile a bystander's records go end to end."""
    count = bench.scaled(1000, 100)
    with all_secured(bench) as brokers:
        for each in brokers:
            options = each.add_user("root")
            settings = ConnectionSettings(
                security_protocol="SASL_SSL",
                ssl_cafile=options["ssl.ca.location"],
                sasl_mechanism=options["sasl.mechanism"],
                sasl_plain_username=options["sasl.username"],
                sasl_plain_password=options["sasl.password"],
            )
            for _ in range(bench.repeats):
                quiet = bystander(bench, each)
                taken: list[float] = []
                disturbed = bystander(bench, each, partial(_log_in_again, each.port, settings, count, taken))
                for name, value, unit in (
                    (f"{count} logins at once", taken[0], "s"),
                    ("bystander p99, quiet", percentile(quiet, 99), "ms"),
                    ("bystander p99, while clients log in", percentile(disturbed, 99), "ms"),
                ):
                    bench.add("logins", name, unit, "lower", each.broker, value)


def bystander(
    bench: Bench, each: Secured, disturb: Callable[[threading.Event], Any] | None = None
) -> list[float]:
    """Sorted times of records end to end on the open listener, while ``disturb`` runs until the event is set."""
    topic = bench.topic(each.broker, 1)
    trips = bench.scaled(3_000, 300)
    job = load.Job("latency", each.broker.address, topic, trips, partitions=1, acks="all")
    ended = threading.Event()
    failures: list[Exception] = []

    def run() -> None:
        assert disturb is not None
        try:
            disturb(ended)
        except Exception as failure:
            failures.append(failure)

    thread = threading.Thread(target=run) if disturb is not None else None
    if thread is not None:
        thread.start()
    try:
        found = sorted(load.run(job).latencies_ms)
    finally:
        ended.set()
        if thread is not None:
            thread.join(_PATIENCE)
    bench.drop(each.broker, topic)
    if failures:
        raise failures[0]
    return found


def _log_in_again(
    port: int, settings: ConnectionSettings, count: int, taken: list[float], ended: threading.Event
) -> None:
    """Open ``count`` connections at once, close them, and begin again, until the event is set."""
    login, tls = login_of(settings), settings.tls_context()

    async def open_one() -> Connection:
        return await Connection.open(
            HOST, port, client_id="bench", timeout=_PATIENCE, ssl_context=tls, login=login
        )

    async def run() -> None:
        while not ended.is_set() or not taken:
            began = perf_counter()
            opened = await asyncio.gather(*(open_one() for _ in range(count)))
            taken.append(perf_counter() - began)
            for connection in opened:
                connection.close()
            await asyncio.gather(*(connection.wait_closed() for connection in opened))

    asyncio.run(run())
