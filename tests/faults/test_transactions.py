"""Random transactions under kills, freezes, cuts, moves and late requests: each is there whole, or not at all.

``make faults`` goes on until 100,000 commits are acknowledged, half of them by one broker and half by a cluster;
``OTTLA_FAULT_TRANSACTIONS`` is another number. ``OTTLA_FAULT_SEED`` decides on the faults. All requests and answers of
the clients are kept in ``frames.trace`` among the logs.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from harness.ports import free_port
from tests.faults.checker import summary
from tests.faults.cluster import FaultCluster
from tests.faults.conftest import Plan
from tests.faults.exactly_once import Anomaly, check_ledger
from tests.faults.nemesis import OFFSETS, TRANSACTIONS, TRANSACTIONS_PARTITIONS, Nemesis
from tests.faults.network import Network
from tests.faults.skipped import skipping
from tests.faults.transactors import PARTITIONS, TOPIC, Delays, Trace, Transactors
from tests.support.late_frames import LateFrames
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic

_WANTED = int(os.environ.get("OTTLA_FAULT_TRANSACTIONS") or 100_000) // 2
_SHORT = 300
_LATE = 0.03
"""The share of the requests that are held back."""
_STANDSTILL = 180.0
_NOT_HERE = ("clock", "tail", "wipe", "ZooKeeper with", "kill one ZooKeeper")
"""Faults that transactions time out by, or that have nothing to do with them."""


def strike(
    transactors: Transactors,
    wanted: int,
    fault: Callable[[], str],
    chance: random.Random,
    timeline: list[str],
) -> None:
    """Inject faults until so many transactions are committed."""
    began = reported = moved = time.monotonic()
    acknowledged = 0
    while acknowledged < wanted:
        time.sleep(chance.uniform(1, 5))
        timeline.append(f"{time.monotonic() - began:8.1f} {fault()}")
        transactors.check_alive()
        before, acknowledged = acknowledged, transactors.acknowledged()
        now = time.monotonic()
        moved = now if acknowledged > before else moved
        assert now - moved < _STANDSTILL, f"nothing was committed for {now - moved:.0f} s"
        if now - reported > 30:
            reported = now
            print(f"{now - began:8.1f} {acknowledged} committed", flush=True)


@contextmanager
def disturbed(networks: Sequence[LateFrames], plan: Plan, folder: Path) -> Iterator[Delays]:
    delays = Delays(networks, plan.seed, _LATE, Trace(folder / "frames.trace", networks))
    delays.start()
    try:
        yield delays
    finally:
        delays.calm()
        delays.trace.close()


def conclude(transactors: Transactors, delays: Delays, timeline: list[str], seed: int) -> None:
    delays.calm()
    ledger = transactors.finish()
    delays.trace.close()
    found = _of_the_broker(check_ledger(ledger), delays.trace.path)
    outcomes = {
        outcome: sum(1 for each in ledger.ended if each.outcome == outcome)
        for outcome in ("commit", "abort", "unknown")
    }
    records = sum(map(len, ledger.log.values()))
    print(
        f"seed {seed}: {outcomes}, {records} records read; late: {dict(delays.counts)}; faults: {len(timeline)};"
        f" errors: {dict(ledger.errors)}; {len(found)} anomalies",
        flush=True,
    )
    assert not found, "\n".join([summary(found, 20), *timeline])


def _of_the_broker(found: list[Anomaly], trace: Path) -> list[Anomaly]:
    """Leave out the errors of clients that skipped a sequence number."""
    error = "OUT_OF_ORDER_SEQUENCE_NUMBER"
    if not any(error in anomaly.text for anomaly in found):
        return found
    own = {f"{producer} in {transaction}: {error}" for producer, transaction in skipping(trace)}
    print(f"skipped by their clients: {[each.text for each in found if each.text in own]}", flush=True)
    return [anomaly for anomaly in found if anomaly.text not in own]


@contextmanager
def working(folder: Path, address: str, bootstrap: str, seed: int, scale: int) -> Iterator[Transactors]:
    print(f"OTTLA_FAULT_SEED={seed}, logs: {folder}", flush=True)
    transactors = Transactors(folder, address, bootstrap, seed, scale)
    try:
        transactors.start()
        yield transactors
    finally:
        transactors.kill()


def test_one_broker(tmp_path: Path, plan: Plan) -> None:
    chance = random.Random(plan.seed)
    wanted = _WANTED if plan.summary else _SHORT
    timeline: list[str] = []
    with LateFrames() as network:
        network.target = free_port()
        settings = {
            "advertised.listeners": f"PLAINTEXT://{network.address}",
            "group.initial.rebalance.delay.ms": 0,
        }
        with BrokerProcess(tmp_path / "broker", settings, network.target) as broker:
            create_topic(broker, TOPIC, PARTITIONS)

            def fault() -> str:
                if chance.random() < 0.3:
                    broker.kill()
                    broker.start()
                    return "kill"
                if chance.random() < 0.5:
                    broker.send_signal(signal.SIGSTOP)
                    time.sleep(chance.choice((0.2, 1, 6)))
                    broker.send_signal(signal.SIGCONT)
                    return "freeze"
                return f"cut {network.cut()} connections"

            scale = 4 if plan.summary else 1
            with (
                working(tmp_path, network.address, broker.bootstrap, plan.seed, scale) as transactors,
                disturbed([network], plan, tmp_path) as delays,
            ):
                strike(transactors, wanted, fault, chance, timeline)
                conclude(transactors, delays, timeline, plan.seed)
            assert not broker.complaints()


@pytest.mark.skipif(not os.environ.get("OTTLA_FAULT_MINUTES"), reason="make faults runs it: it takes minutes")
def test_cluster(tmp_path: Path, plan: Plan) -> None:
    """With an odd seed, the cluster has finalized transaction version 2, which Java 4's producers use then."""
    chance = random.Random(plan.seed)
    timeline: list[str] = []
    with Network() as network:
        cluster = FaultCluster(tmp_path, network, (TOPIC, OFFSETS, TRANSACTIONS))
        try:
            cluster.start()
            _create(cluster)
            if plan.seed % 2:
                _finalize(cluster)
            nemesis = Nemesis(
                cluster, chance, TOPIC, PARTITIONS, 10.0, transactions=True, written=(TOPIC, PARTITIONS)
            )
            order = (name for name in nemesis.order() if not any(word in name for word in _NOT_HERE))

            def fault() -> str:
                # Moves are quick, and most of what may go wrong needs one.
                name = "lead elsewhere" if chance.random() < 0.4 else next(order)
                done = nemesis.faults[name]()
                if chance.random() < 0.5:
                    cluster.wait_whole()
                return f"{name}: {done}"

            addresses = ",".join(late.address for late in cluster.late.values())
            with (
                working(tmp_path, addresses, cluster.bootstrap, plan.seed, 4) as transactors,
                disturbed(list(cluster.late.values()), plan, tmp_path) as delays,
            ):
                strike(transactors, _WANTED, fault, chance, timeline)
                cluster.heal()
                cluster.wait_whole()
                conclude(transactors, delays, timeline, plan.seed)
            assert not [line for member in cluster.members.values() for line in member.complaints()]
        finally:
            cluster.close()


def _create(cluster: FaultCluster) -> None:
    in_sync = {"min.insync.replicas": "2"}
    compacted = {"cleanup.policy": "compact", **in_sync}
    new = [
        NewTopic(TOPIC, PARTITIONS, 3, config=in_sync),
        NewTopic(OFFSETS, 3, 3, config=compacted),
        NewTopic(TRANSACTIONS, TRANSACTIONS_PARTITIONS, 3, config=compacted),
    ]
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    for future in admin.create_topics(new, operation_timeout=30).values():
        future.result(30)


def _finalize(cluster: FaultCluster) -> None:
    from tests.cli.ottla_command import Ottla

    Ottla(cluster.bootstrap)("features", "upgrade", "--feature", "transaction.version=2")
