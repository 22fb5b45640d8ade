"""A run of faults against a cluster under load: what is started, in which order, and the report."""

from __future__ import annotations

import random
import statistics
import time
from collections import defaultdict
from collections.abc import Collection

from confluent_kafka.admin import AdminClient, NewTopic
from tests.faults.checker import stale_answers
from tests.faults.cluster import FaultCluster
from tests.faults.conftest import Plan
from tests.faults.history import History
from tests.faults.load import GROUP, Clock, GroupMember, Inquirer, Reader, read_log
from tests.faults.nemesis import OFFSETS, TRANSACTIONS, TRANSACTIONS_PARTITIONS, Nemesis
from tests.faults.transformers import TARGET, TARGET_PARTITIONS, Transformers
from tests.faults.writers import OttlaWriter, RdkafkaWriter, Writer, attempt
from tests.support.waiting import wait_for

from ottla_protocol.partitioning import partition_for
from ottla_protocol.records.formats import iter_headers

TOPIC = "acknowledged"
PARTITIONS = 4
_OFFSETS_PARTITIONS = 5
_PROGRESS_SECONDS = 60.0


class Load:
    """All clients of a run."""

    def __init__(
        self, cluster: FaultCluster, seed: int, pause: float, kinds: Collection[str] = ("idempotent", "plain")
    ) -> None:
        self.history = History()
        self.clock = Clock()
        self.pause = pause
        self.bootstrap = cluster.bootstrap
        common = (self.history, self.clock, cluster.bootstrap, TOPIC, PARTITIONS)
        self.writers: list[Writer] = []
        if "idempotent" in kinds:
            # With several batches in flight, which must keep their order, and with one at a time.
            self.writers = [
                RdkafkaWriter("idempotent-0", *common, pause, idempotent=True, in_flight=5),
                RdkafkaWriter("idempotent-1", *common, pause, idempotent=True),
                OttlaWriter("ottla-0", *common, pause),
            ]
        if "plain" in kinds:
            self.writers += [RdkafkaWriter(f"plain-{n}", *common, pause, idempotent=False) for n in range(2)]
        self.readers = [Reader(f"reader-{n}", *common) for n in range(2)]
        self.inquirer = Inquirer("inquirer", *common)
        self.inquirer.begin()
        self.members = [GroupMember(f"member-{n}", *common[:-1], seed + n) for n in range(2)]
        self.transformers: Transformers | None = None

    def start(self) -> None:
        for client in (*self.writers, *self.readers, self.inquirer, *self.members):
            client.start()
        if self.transformers is not None:
            self.transformers.start()

    def wait_for_progress(self) -> None:
        """Every producer makes progress in every partition, and the group commits."""
        now = self.clock()
        for writer in self.writers:
            try:
                wait_for(
                    lambda writer=writer: min(writer.latest.values()) > now,
                    f"{writer.name} to get on",
                    _PROGRESS_SECONDS,
                    0.05,
                )
            except AssertionError:
                last = {partition: round(time, 3) for partition, time in writer.latest.items()}
                raise AssertionError(
                    f"{writer.name} has not got on since {now:.3f}; last acknowledged, by partition: {last}\n"
                    f"{writer.name}: {writer.state()}\n{attempt(self.bootstrap, TOPIC, PARTITIONS)}"
                ) from None
        wait_for(
            lambda: max(member.committed_at for member in self.members) > now,
            "the group to commit",
            _PROGRESS_SECONDS,
            0.05,
        )

    def longest_gap(self) -> float:
        """The longest that a producer has waited for an acknowledgement since the last call."""
        now = self.clock()
        longest = max(max(writer.gap, now - writer.last) for writer in self.writers)
        for writer in self.writers:
            writer.gap = 0.0
        return longest

    def finish(self, cluster: FaultCluster) -> None:
        """Stop writing, read everything, and read the log once more."""
        if self.transformers is not None:
            self.transformers.calm()
        for writer in self.writers:
            writer.stop()
        for writer in self.writers:
            writer.join()
        acked: dict[int, int] = defaultdict(int)
        for each in self.history.acked:
            acked[each.partition] = max(acked[each.partition], each.offset + 1)
        log, wrong = read_log(cluster.bootstrap, TOPIC, PARTITIONS, acked)
        self.history.log = log
        if wrong:
            self.history.complaints.append(f"the last reader: {wrong}")
        ends = {partition: len(records) for partition, records in log.items()}
        for reader in self.readers:
            reader.stop()
            reader.join()
            reader.read_to(ends, 60)
        self._let_the_group_read(ends)
        if self.transformers is not None:
            self.history.transformed = self.transformers.finish(cluster.bootstrap, TOPIC, ends)
        for client in (self.inquirer, *self.members):
            client.stop()
            client.join()

    def _let_the_group_read(self, ends: dict[int, int]) -> None:
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            committed: dict[int, int] = defaultdict(int)
            for commit in list(self.history.commits):
                committed[commit.partition] = max(committed[commit.partition], commit.offset)
            if all(committed[partition] >= end for partition, end in ends.items()):
                return
            time.sleep(0.1)


def topics(plan: Plan) -> tuple[str, ...]:
    """The topics that a run writes to."""
    return (TOPIC, OFFSETS, TARGET, TRANSACTIONS) if plan.exactly_once else (TOPIC, OFFSETS)


def create(cluster: FaultCluster, *, exactly_once: bool) -> None:
    """Small segments, so that faults hit rolling logs and indexes that must be rebuilt."""
    configs = {"min.insync.replicas": "2", "segment.bytes": "100000", "segment.index.bytes": "4096"}
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    new = [NewTopic(TOPIC, PARTITIONS, 3, config=configs)]
    compacted = {"cleanup.policy": "compact"}
    new.append(NewTopic(OFFSETS, _OFFSETS_PARTITIONS, 3, config=compacted))
    if exactly_once:
        new.append(NewTopic(TARGET, TARGET_PARTITIONS, 3, config=configs))
        kept = {**compacted, "min.insync.replicas": "2"}
        new.append(NewTopic(TRANSACTIONS, TRANSACTIONS_PARTITIONS, 3, config=kept))
    for future in admin.create_topics(new, operation_timeout=30).values():
        future.result(30)


def run(cluster: FaultCluster, plan: Plan, timeline: list[str]) -> History:
    """Inject faults until the time is up. Returns the clients' history."""
    cluster.start()
    create(cluster, exactly_once=plan.exactly_once)
    # A long run writes more slowly, because its history is in memory.
    load = Load(cluster, plan.seed, 0.1 if plan.seconds < 300 else 0.15, plan.producers)
    if plan.exactly_once:
        load.transformers = Transformers(cluster.folder, cluster.late, TOPIC, plan.seed)
    try:
        return strike_on(cluster, load, plan, timeline)
    except Exception:
        timeline += load.history.complaints[:5]
        if load.transformers is not None:
            load.transformers.stop()
        for writer in load.writers:
            writer.abandon()
        for writer in load.writers:
            writer.join()
        raise


def strike_on(cluster: FaultCluster, load: Load, plan: Plan, timeline: list[str]) -> History:
    chance = random.Random(plan.seed)
    nemesis = Nemesis(cluster, chance, TOPIC, PARTITIONS, plan.without_store, transactions=plan.exactly_once)
    nemesis.coordinating = partition_for(GROUP, _OFFSETS_PARTITIONS)
    load.start()
    cluster.wait_whole()
    load.wait_for_progress()
    load.longest_gap()
    gaps: dict[str, list[float]] = defaultdict(list)
    clock = load.clock

    def say(began: float, text: str) -> None:
        timeline.append(f"{began:8.3f} {text}")
        print(timeline[-1], flush=True)

    for name in nemesis.order():
        if plan.only and name not in plan.only:
            continue
        began = clock()
        if began > plan.seconds:
            break
        try:
            done = nemesis.faults[name]()
        except Exception as error:
            say(began, f"{name}: failed: {error}")
            raise
        # Sometimes the next fault hits a cluster that has not recovered yet.
        if chance.random() < 0.7:
            struck = clock()
            try:
                cluster.wait_whole()
                quiet = clock()
                load.wait_for_progress()
                load.history.quiet.append((quiet, clock()))
            except AssertionError:
                say(began, f"{name}: {done} until {struck:.3f}; the cluster has not got up by {clock():.3f}")
                raise
        gap = load.longest_gap()
        gaps[name].append(gap)
        say(began, f"{name}: {done}; over at {clock():.3f}, longest wait for an acknowledgement {gap:.2f} s")
    cluster.heal()
    cluster.wait_whole()
    quiet = clock()
    load.wait_for_progress()
    load.finish(cluster)
    load.history.quiet.append((quiet, clock()))
    timeline += [line for writer in load.writers for line in writer.diary]
    timeline.append(figures(load, gaps))
    return load.history


def figures(load: Load, gaps: dict[str, list[float]]) -> str:
    """How much was acknowledged, and how long clients waited."""
    history = load.history
    lines = [
        f"{len(history.acked)} records acknowledged, {sum(map(len, history.log.values()))} in the log,"
        f" {len(history.commits)} commits, {len(history.fetched)} fetches of committed offsets"
        f" ({stale_answers(history)} of them stale),"
        f" {sum(member.rebalances for member in load.members)} assignments",
        "longest waits for an acknowledgement, in seconds: median and most",
    ]
    if load.transformers is not None:
        outcomes = load.transformers.outcomes() + load.transformers.counts
        lines.insert(
            1, f"transformers: {', '.join(f'{count} {what}' for what, count in sorted(outcomes.items()))}"
        )
    for name in sorted(gaps):
        times = gaps[name]
        lines.append(f"    {name:40} {len(times):3} times {statistics.median(times):6.2f} {max(times):6.2f}")
    return "\n".join(lines)


def compare_replicas(cluster: FaultCluster, history: History) -> list[str]:
    """Stop all brokers, check that a partition's replicas are identical, and note the producers' epochs."""
    cluster.wait_whole()
    for member in cluster.members.values():
        member.stop()
    differing: list[str] = []
    for partition in range(PARTITIONS):
        for _, header in iter_headers(_contents(cluster, TOPIC, partition, differing)):
            for offset in range(header.base_offset, header.last_offset + 1):
                history.epochs[partition, offset] = header.producer_id, header.producer_epoch
    if history.transformed is not None:
        for partition in range(TARGET_PARTITIONS):
            _contents(cluster, TARGET, partition, differing)
    return differing


def _contents(cluster: FaultCluster, topic: str, partition: int, differing: list[str]) -> bytes:
    contents = {
        number: b"".join(
            path.read_bytes() for path in sorted((member.folder / f"{topic}-{partition}").glob("*.log"))
        )
        for number, member in cluster.members.items()
    }
    if len(set(contents.values())) != 1:
        sizes = {number: len(content) for number, content in contents.items()}
        differing.append(f"replicas of {topic}-{partition} differ; their sizes: {sizes}")
    return contents[1]
