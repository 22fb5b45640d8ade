"""Consumers of all generations read one topic while members, brokers and coordinators are killed or freeze.

Each generation is a group of its own: two members each, and a simple consumer. No group may miss a record that was
acknowledged, and in the share group that is ordered by key no record may come before an earlier one of its key.
``make faults`` runs it; ``OTTLA_FAULT_SEED`` decides on the faults.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from harness.ports import free_port
from tests.faults.conftest import Plan
from tests.faults.reader import GENERATIONS, ORDERED, SESSION_MS, SHARES
from tests.support.cluster import Cluster
from tests.support.traffic import Stream, create
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client.admin import AlterConfig, ConfigResource, ResourceType
from ottla_client.sync import Admin

TOPIC, PARTITIONS, KEYS = "shared", 6, 60
PROGRAM = Path(__file__).with_name("reader.py")
REPLICATED = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "offsets.topic.replication.factor": 3,
    "offsets.commit.required.acks": -1,
    "auto.create.topics.enable": "false",
    "group.share.heartbeat.interval.ms": 1_000,
    "group.share.min.heartbeat.interval.ms": 1_000,
    "group.share.session.timeout.ms": SESSION_MS,
    "group.share.min.session.timeout.ms": SESSION_MS,
    "group.share.record.lock.duration.ms": 15_000,
    "share.coordinator.state.topic.num.partitions": 5,
}
LONG_ENOUGH = SESSION_MS / 1000 + 4
"""Seconds of a freeze after which sessions have ended."""
CATCH_UP_SECONDS = 180.0

pytestmark = pytest.mark.skipif(
    not os.environ.get("OTTLA_FAULT_MINUTES"), reason="make faults runs it: a round of faults takes minutes"
)


class Member:
    """A reader's process; the next one of its name goes on where it stopped."""

    def __init__(
        self, cluster: Cluster, folder: Path, coordinators: str, generation: str, number: int
    ) -> None:
        self.name = f"{generation}-{number}"
        self.generation = generation
        self.read_file = folder / f"{self.name}.read"
        self.read_file.touch()
        self._log = folder / f"{self.name}.log"
        self._arguments = [
            generation,
            self.name,
            f"group-{generation}",
            TOPIC,
            str(PARTITIONS),
            cluster.bootstrap,
            cluster.connect,
            coordinators,
            str(self.read_file),
        ]
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        with self._log.open("ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, str(PROGRAM), *self._arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
            )

    def signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def read(self) -> list[str]:
        # A line that a kill has cut short is not one.
        return [line for line in self.read_file.read_text().rpartition("\n")[0].split("\n") if line]


class Faults:
    """Breaks one thing after another, and repairs it."""

    def __init__(self, cluster: Cluster, members: list[Member], chance: random.Random) -> None:
        self._cluster = cluster
        self._members = members
        self._chance = chance
        self.done: Counter[str] = Counter()
        self._due: list[str] = []

    def next(self) -> None:
        """One fault; all kinds come before one comes again."""
        kinds: dict[str, Callable[[], None]] = {
            "broker killed": self._kill_broker,
            "broker frozen": self._freeze_broker,
            "coordinator of 2012 killed": self._kill_coordinator,
        }
        for generation in GENERATIONS:
            for what, how in (("killed", self._kill), ("frozen", self._freeze)):
                kinds[f"{generation} member {what}"] = lambda how=how, of=generation: how(of)
        if not self._due:
            self._due = list(kinds)
            self._chance.shuffle(self._due)
        kind = self._due.pop()
        print(f"{time.strftime('%H:%M:%S')} {kind}", flush=True)
        kinds[kind]()
        self.done[kind] += 1

    def _one(self, generation: str) -> Member:
        return self._chance.choice([each for each in self._members if each.generation == generation])

    def _kill(self, generation: str) -> None:
        member = self._one(generation)
        member.kill()
        time.sleep(self._chance.choice([0.1, 3.0]))
        member.start()
        time.sleep(2.0)

    def _freeze(self, generation: str) -> None:
        member = self._one(generation)
        member.signal(signal.SIGSTOP)
        time.sleep(LONG_ENOUGH)
        member.signal(signal.SIGCONT)
        time.sleep(2.0)

    def _kill_broker(self, number: int | None = None) -> None:
        cluster = self._cluster
        broker = cluster.brokers[number or self._chance.choice(list(cluster.brokers))]
        broker.kill()
        time.sleep(self._chance.choice([1.0, 8.0]))
        broker.start()
        self._whole()

    def _freeze_broker(self) -> None:
        number = self._chance.choice(list(self._cluster.brokers))
        self._cluster.freeze(number)
        time.sleep(LONG_ENOUGH)
        self._cluster.thaw(number)
        self._whole()

    def _kill_coordinator(self) -> None:
        from kazoo.client import KazooClient
        from kazoo.exceptions import NoNodeError

        zookeeper = KazooClient(self._cluster.connect)

        def elected() -> bytes:
            try:
                return zookeeper.get("/consumers/coordinator")[0]
            except NoNodeError:
                return b""

        zookeeper.start(60)
        try:
            number = int(wait_for(elected, "a coordinator of 2012", 60))
        finally:
            zookeeper.stop()
            zookeeper.close()
        self._kill_broker(number)

    def _whole(self) -> None:
        self._cluster.wait_in_sync(TOPIC, 3, 120)
        time.sleep(2.0)


def test_no_generation_misses_a_record(zookeeper: ZooKeeperProcess, tmp_path: Path, plan: Plan) -> None:
    ports: dict[int, int] = {}

    def listeners(port: int) -> dict[str, object]:
        ports[port] = free_port()
        return {"coordinator.listener": ports[port]}

    cluster = Cluster(tmp_path, zookeeper, settings=REPLICATED, listeners=listeners)
    coordinators = ",".join(f"127.0.0.1:{port}" for port in ports.values())
    members = [
        Member(cluster, tmp_path, coordinators, generation, number)
        for generation in GENERATIONS
        for number in range(1 if generation == "simple" else 2)
    ]
    faults = Faults(cluster, members, random.Random(plan.seed))
    print(f"OTTLA_FAULT_SEED={plan.seed}, {plan.seconds:g} s, logs: {tmp_path}", flush=True)
    try:
        cluster.start()
        create(cluster, TOPIC, PARTITIONS)
        with Admin(cluster.bootstrap) as admin:
            admin.alter_configs(
                {
                    ConfigResource(ResourceType.GROUP, f"group-{each}"): [
                        AlterConfig("share.auto.offset.reset", "earliest"),
                        AlterConfig("share.delivery.count.limit", "10"),
                        AlterConfig("share.key.ordered", str(each == ORDERED).lower()),
                    ]
                    for each in SHARES
                }
            )
        for member in members:
            member.start()
        stream = Stream(cluster, TOPIC, keys=KEYS)
        until = time.monotonic() + plan.seconds
        while time.monotonic() < until:
            faults.next()
        acknowledged = set(stream.stop())
        missing: dict[str, set[str]] = {}

        def all_read() -> bool:
            for generation in GENERATIONS:
                missing[generation] = acknowledged - set(_read(members, generation))
            return not any(missing.values())

        try:
            wait_for(all_read, "all records to be read", CATCH_UP_SECONDS, 1.0)
        except AssertionError:
            lost = {generation: sorted(values)[:5] for generation, values in missing.items() if values}
            raise AssertionError(f"lost: {lost}; logs: {tmp_path}") from None
        print(f"{len(acknowledged)} records, longest wait for an acknowledgement {stream.gap:.1f} s; 0 lost")
        for generation in GENERATIONS:
            seen = _read(members, generation)
            print(f"  {generation}: read again after faults: {len(seen) - len(set(seen))}")
        print("  " + ", ".join(f"{kind}: {count}" for kind, count in sorted(faults.done.items())), flush=True)
        inversions = out_of_order(
            [line for each in members if each.generation == ORDERED for line in each.read()]
        )
        assert not inversions, f"{len(inversions)} out of order: {inversions[:3]}; logs: {tmp_path}"
        assert not cluster.complaints()
    finally:
        for member in members:
            member.kill()
        cluster.thaw_all()
        cluster.kill()


def _read(members: list[Member], generation: str) -> list[str]:
    lines = [line for each in members if each.generation == generation for line in each.read()]
    return [line.split()[0] for line in lines] if generation in SHARES else lines


def out_of_order(lines: list[str]) -> list[str]:
    """Records that came before an earlier one of their key, which is in one partition, had come at all."""
    read = sorted((int(at), key, int(offset)) for _, key, offset, at in (line.split() for line in lines))
    positions: dict[str, dict[int, int]] = {}
    for key, offset in sorted({(key, offset) for _, key, offset in read}):
        of_key = positions.setdefault(key, {})
        of_key[offset] = len(of_key)
    seen: dict[str, int] = {}
    found = []
    for at, key, offset in read:
        position = positions[key][offset]
        if position > seen.get(key, 0):
            found.append(f"key {key}, offset {offset} at {at}")
        seen[key] = max(seen.get(key, 0), position + 1)
    return found
