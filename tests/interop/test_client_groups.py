"""Our members in one group with Java's, and our assignors beside Java's."""

from __future__ import annotations

import asyncio
import json
import random
import subprocess
import threading
from collections.abc import AsyncIterator, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
from tests.client.group.cases import STRATEGIES, as_sets, make_case, solve
from tests.interop.conftest import MakeTopic
from tests.interop.support import PROGRAMS, Java, json_lines, needed, run

from ottla_client.cluster import Cluster
from ottla_client.deadline import Deadline
from ottla_client.group import GroupMember, MemberSettings, assignors_named
from ottla_client.types import TopicPartition

COUNT = 6
CLASSES = {
    "range": "RangeAssignor",
    "roundrobin": "RoundRobinAssignor",
    "sticky": "StickyAssignor",
    "cooperative-sticky": "CooperativeStickyAssignor",
}


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    sources = [str(PROGRAMS / f"{name}.java") for name in ("Assignments", "GroupMember")]
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), *sources])
    return folder


class JavaMember:
    """A member in a process of its own."""

    def __init__(self, java: Java, classes: Path, group: str, topic: str, strategies: Iterable[str]) -> None:
        names = ",".join(f"org.apache.kafka.clients.consumer.{CLASSES[each]}" for each in strategies)
        command = java.command("GroupMember", java.address, group, topic, names, classes=classes)
        self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
        self._topic = topic
        self.assignment: frozenset[TopicPartition] = frozenset()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            numbers = (int(number) for number in line.split(",") if number.strip())
            self.assignment = frozenset(TopicPartition(self._topic, number) for number in numbers)

    def leave(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        assert self._process.wait(30) == 0
        self._end()

    def kill(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait()
        self._end()

    def _end(self) -> None:
        self._reader.join()
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        self._process.stdout.close()


class OurMember:
    """A member that only wants to have partitions."""

    def __init__(self, address: str, group: str, topic: str, strategies: Iterable[str]) -> None:
        self.cluster = Cluster(address)
        settings = MemberSettings(session_timeout_ms=6_000, heartbeat_interval_ms=200)
        self.member = GroupMember(
            self.cluster, group, settings=settings, assignors=assignors_named(strategies), callbacks=self
        )
        self.member.subscribe([topic])
        self.held: set[TopicPartition] = set()

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        assert self.held == self.member.assignment or self.member.group_metadata is None
        return frozenset(self.held)

    async def start(self) -> OurMember:
        await self.cluster.start(Deadline(10))
        self.member.start()
        return self

    async def leave(self) -> None:
        await self.member.close(Deadline(10))
        await self.cluster.close()

    async def on_revoked(self, partitions: Any) -> None:
        self.held -= partitions

    async def on_assigned(self, partitions: Any) -> None:
        self.held |= partitions

    async def on_lost(self, partitions: Any) -> None:
        self.held -= partitions


NewMember = Callable[..., Any]


@pytest.fixture
async def members(java: Java, compiled: Path) -> AsyncIterator[NewMember]:
    """Makes members: ``await members("java" or "ours", group, topic, strategies)``."""
    ours: list[OurMember] = []
    theirs: list[JavaMember] = []

    async def make(kind: str, group: str, topic: str, strategies: Iterable[str]) -> OurMember | JavaMember:
        if kind == "java":
            theirs.append(JavaMember(java, compiled, group, topic, strategies))
            return theirs[-1]
        ours.append(await OurMember(java.address, group, topic, strategies).start())
        return ours[-1]

    yield make
    for one in ours:
        await one.leave()
    for other in theirs:
        other.kill()


async def shared_out(members: Iterable[OurMember | JavaMember], topic: str, timeout: float = 60.0) -> None:
    """Wait until each has some partitions, and all have them all, each once."""
    members = list(members)
    wanted = [TopicPartition(topic, number) for number in range(COUNT)]

    def parts() -> list[list[TopicPartition]]:
        return [sorted(member.assignment) for member in members]

    try:
        async with asyncio.timeout(timeout):
            while not (all(parts()) and sorted(one for part in parts() for one in part) == wanted):
                await asyncio.sleep(0.05)
    except TimeoutError:
        raise AssertionError(f"not shared out within {timeout:g} s: {parts()}") from None


@pytest.mark.parametrize("first", ["java", "ours"])
@pytest.mark.parametrize("strategy", STRATEGIES)
async def test_members_of_both_clients(
    members: NewMember, new_topic: MakeTopic, strategy: str, first: str
) -> None:
    """The first member leads the group, and divides for the others."""
    topic = new_topic(COUNT)
    other = "ours" if first == "java" else "java"
    there: list[Any] = []
    for kind in (first, other, other):
        there.append(await members(kind, f"{topic}-group", topic, [strategy]))
        await shared_out(there, topic)
    # The leader goes, so that one of the others takes its place.
    gone = there.pop(0)
    if first == "java":
        await asyncio.to_thread(gone.leave)
    else:
        await gone.leave()
    await shared_out(there, topic)
    there.append(await members(first, f"{topic}-group", topic, [strategy]))
    await shared_out(there, topic)


async def test_a_java_member_that_is_killed(members: NewMember, new_topic: MakeTopic) -> None:
    topic = new_topic(COUNT)
    java = await members("java", f"{topic}-group", topic, ["cooperative-sticky"])
    await shared_out([java], topic)
    ours = await members("ours", f"{topic}-group", topic, ["cooperative-sticky"])
    await shared_out([java, ours], topic)
    java.kill()
    await shared_out([ours], topic)


async def test_from_eager_to_cooperative_with_java(members: NewMember, new_topic: MakeTopic) -> None:
    """Two rolling restarts (KIP-429), the strategies being Java's defaults and then cooperative alone."""
    topic = new_topic(COUNT)
    group = f"{topic}-group"
    defaults = ["range", "cooperative-sticky"]
    java = await members("java", group, topic, defaults)
    ours = await members("ours", group, topic, defaults)
    await shared_out([java, ours], topic)
    await ours.leave()
    ours = await members("ours", group, topic, defaults[1:])
    await shared_out([java, ours], topic)
    await asyncio.to_thread(java.leave)
    java = await members("java", group, topic, defaults[1:])
    await shared_out([java, ours], topic)


def test_java_divides_as_we_do(java: Java, compiled: Path) -> None:
    """Cases at random: the same assignments; where members read different topics at least as even ones."""
    chance = random.Random(429)
    cases = [
        (make_case(chance, strategy, same=same), same)
        for strategy in STRATEGIES
        for same in (True, False)
        for _ in range(100)
    ]
    command = java.command("Assignments", classes=compiled)
    answers = json_lines(run(command, stdin=json.dumps([case for case, _ in cases])))
    for (case, same), answer in zip(cases, answers, strict=True):
        ours, theirs = as_sets(solve(case)["assignment"]), as_sets(answer["assignment"])
        if same or case["strategy"] in ("range", "roundrobin"):
            assert ours == theirs, case
        else:
            # Which of a topic's partitions are moved is left to the order of a hash map in Java.
            assert _sizes(ours) == _sizes(theirs), case


def _sizes(assignment: dict[str, list[tuple[str, int]]]) -> dict[str, int]:
    return {member: len(partitions) for member, partitions in assignment.items()}
