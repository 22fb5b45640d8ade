"""Consumers of all generations on one topic of a cluster, while members, brokers and coordinators are killed or freeze.

Each generation is a group of its own: two bundled members each, and a simple consumer; beside them Kafka's console
consumers of several versions (``java_members``). No group may miss a record that was acknowledged, and in the share
group that is ordered by key no record may come before an earlier one of its key.
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from harness.ports import free_port
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.faults.java_members import java_commands
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


class Member:
    """A consumer's process, which writes a line for each record; the next one of its name goes on where it stopped.

    ``kind`` is the generation of a bundled consumer, with the version of one of Kafka's.
    """

    def __init__(self, folder: Path, generation: str, name: str, kind: str, command: list[str]) -> None:
        self.name = name
        self.generation = generation
        self.kind = kind
        self._folder = folder
        self._command = command
        self._starts = 0
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        self._starts += 1
        output = self._folder / f"{self.name}.{self._starts}.read"
        with (self._folder / f"{self.name}.log").open("ab") as log, output.open("wb") as out:
            self.process = subprocess.Popen(
                self._command,
                stdin=subprocess.DEVNULL,
                stdout=out,
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

    @property
    def has_ended(self) -> bool:
        return self.process is not None and self.process.poll() is not None

    def read(self) -> list[str]:
        """What it has written; not a line that a kill has cut short, nor a warning of one of Kafka's tools."""
        found: list[str] = []
        for start in range(1, self._starts + 1):
            text = (self._folder / f"{self.name}.{start}.read").read_text().rpartition("\n")[0]
            found += [line for line in text.split("\n") if line[:1].isdigit()]
        return found


def bundled(cluster: Cluster, folder: Path, coordinators: str) -> list[Member]:
    """Two members of each generation, and a simple consumer."""
    members = []
    for generation in GENERATIONS:
        for number in range(1 if generation == "simple" else 2):
            name = f"{generation}-{number}"
            where = [TOPIC, str(PARTITIONS), cluster.bootstrap, cluster.connect, coordinators]
            command = [sys.executable, str(PROGRAM), generation, name, f"group-{generation}", *where]
            members.append(Member(folder, generation, name, generation, command))
    return members


def of_kafka(cluster: Cluster, folder: Path) -> list[Member]:
    """A member of Kafka's own for each that :func:`java_commands` names. Raises Unavailable."""
    return [
        Member(folder, generation, f"{generation}-{version}", f"{generation} {version}", command)
        for generation, version, command in java_commands(cluster, folder, TOPIC, "group-", SESSION_MS)
    ]


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
            "broker killed": self.kill_broker,
            "broker frozen": self._freeze_broker,
            "coordinator of 2012 killed": self._kill_coordinator,
        }
        for kind in {each.kind: None for each in self._members}:
            kinds[f"{kind} member killed"] = partial(self._kill, kind)
            kinds[f"{kind} member frozen"] = partial(self._freeze, kind)
        if not self._due:
            self._due = list(kinds)
            self._chance.shuffle(self._due)
        fault = self._due.pop()
        print(f"{time.strftime('%H:%M:%S')} {fault}", flush=True)
        kinds[fault]()
        self.done[fault] += 1

    def _one(self, kind: str) -> Member:
        return self._chance.choice([each for each in self._members if each.kind == kind])

    def _kill(self, kind: str) -> None:
        member = self._one(kind)
        member.kill()
        time.sleep(self._chance.choice([0.1, 3.0]))
        member.start()
        time.sleep(2.0)

    def _freeze(self, kind: str) -> None:
        member = self._one(kind)
        member.signal(signal.SIGSTOP)
        time.sleep(LONG_ENOUGH)
        member.signal(signal.SIGCONT)
        time.sleep(2.0)

    def kill_broker(self, number: int | None = None) -> None:
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
        with _nodes(self._cluster) as zookeeper:

            def elected() -> bytes:
                try:
                    return bytes(zookeeper.get("/consumers/coordinator")[0])
                except NoNodeError:
                    return b""

            number = int(wait_for(elected, "a coordinator of 2012", 60))
        self.kill_broker(number)

    def _whole(self) -> None:
        self._cluster.wait_in_sync(TOPIC, 3, 120)
        time.sleep(2.0)


class Generations:
    """The cluster, its members, and a stream of records that all of them read; use it in a ``with`` statement.

    ``kafkas``: Kafka's own consumers read as well; raises Unavailable if they are not to be had.
    """

    def __init__(self, zookeeper: ZooKeeperProcess, folder: Path, seed: int, kafkas: bool) -> None:
        ports: dict[int, int] = {}

        def listeners(port: int) -> dict[str, object]:
            ports[port] = free_port()
            return {"coordinator.listener": ports[port]}

        self.folder = folder
        self.cluster = Cluster(folder, zookeeper, settings=REPLICATED, listeners=listeners)
        coordinators = ",".join(f"127.0.0.1:{port}" for port in ports.values())
        self._bundled = bundled(self.cluster, folder, coordinators)
        self.kafkas = of_kafka(self.cluster, folder) if kafkas else []
        self.members = [*self._bundled, *self.kafkas]
        self.faults = Faults(self.cluster, self.members, random.Random(seed))

    def __enter__(self) -> Generations:
        try:
            self._start()
        except BaseException:
            self._stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self._stop()

    def _start(self) -> None:
        cluster = self.cluster
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
        for member in self._bundled:
            member.start()
        self.stream = Stream(cluster, TOPIC, keys=KEYS)
        if self.kafkas:
            self._wait_for_offsets()
        for member in self.kafkas:
            member.start()
        wait_for(lambda: all(each.read() for each in self.kafkas), "Kafka's consumers to read", 120)

    def _wait_for_offsets(self) -> None:
        """Kafka's consumers of ZooKeeper's generation begin at the end of a partition without an offset."""
        paths = [f"/consumers/group-zookeeper/offsets/{TOPIC}/{number}" for number in range(PARTITIONS)]
        with _nodes(self.cluster) as zookeeper:
            wait_for(lambda: all(zookeeper.exists(path) for path in paths), "offsets in ZooKeeper", 60)

    def _stop(self) -> None:
        for member in self.members:
            member.kill()
        self.cluster.thaw_all()
        self.cluster.kill()

    def finish(self) -> None:
        """End the stream, and check what the members have read."""
        acknowledged = set(self.stream.stop())
        missing: dict[str, set[str]] = {}

        def all_read() -> bool:
            for generation in GENERATIONS:
                missing[generation] = acknowledged - set(self._values(generation))
            return not any(missing.values())

        try:
            wait_for(all_read, "all records to be read", CATCH_UP_SECONDS, 1.0)
        except AssertionError:
            lost = {generation: sorted(values)[:5] for generation, values in missing.items() if values}
            raise AssertionError(f"lost: {lost}; logs: {self.folder}") from None
        gap = self.stream.gap
        print(f"{len(acknowledged)} records, longest wait for an acknowledgement {gap:.1f} s; 0 lost")
        for generation in GENERATIONS:
            seen = self._values(generation)
            print(f"  {generation}: read again after faults: {len(seen) - len(set(seen))}")
        for member in self.kafkas:
            print(f"  {member.kind}: read {len(member.read())}")
        done = sorted(self.faults.done.items())
        print("  " + ", ".join(f"{kind}: {count}" for kind, count in done), flush=True)
        lines = [line for each in self.members if each.generation == ORDERED for line in each.read()]
        inversions = out_of_order(lines)
        assert not inversions, f"{len(inversions)} out of order: {inversions[:3]}; logs: {self.folder}"
        ended = [each.name for each in self.members if each.has_ended]
        assert not ended, f"{ended} have ended; logs: {self.folder}"
        assert not self.cluster.complaints()

    def _values(self, generation: str) -> list[str]:
        """The values that the members of a generation have read; those of share groups write more."""
        lines = [line for each in self.members if each.generation == generation for line in each.read()]
        return [line.split()[0] for line in lines]


@contextmanager
def _nodes(cluster: Cluster) -> Iterator[KazooClient]:
    zookeeper = KazooClient(cluster.connect)
    zookeeper.start(60)
    try:
        yield zookeeper
    finally:
        zookeeper.stop()
        zookeeper.close()


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
