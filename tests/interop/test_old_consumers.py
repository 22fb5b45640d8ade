"""Consumers, producers and tools of Kafka 0.8.2.2 and 0.10.2.2, unchanged, on an Ottla cluster and its ZooKeeper.

The bundled ZooKeeper consumer is a member of the same groups.
"""

from __future__ import annotations

import asyncio
import itertools
import signal
import subprocess
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from harness import maven
from harness.java import Unavailable, find_java
from harness.ports import free_port
from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.interop.support import run
from tests.support.cluster import Cluster
from tests.support.topics import create_topic
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import Admin, Producer, TopicPartition, ZookeeperConsumer

SCALA = {"0.8.2.2": "2.11", "0.10.2.2": "2.12"}
PARTITIONS = 4
PATIENCE: dict[str, Any] = {
    "auto_offset_reset": "smallest",
    "rebalance_backoff_ms": 500,
    "rebalance_max_retries": 100,
    "zookeeper_session_timeout_ms": 20_000,
    "zookeeper_connection_timeout_ms": 60_000,
}
JAVA_SETTINGS = {
    "auto.commit.interval.ms": "200",
    "rebalance.backoff.ms": "500",
    "rebalance.max.retries": "100",
    "zookeeper.session.timeout.ms": "20000",
    "zookeeper.connection.timeout.ms": "60000",
}
_numbers = itertools.count(1)


@dataclass(frozen=True)
class Old:
    """One version's programs, against the cluster."""

    version: str
    libs: Path
    cluster: Cluster
    folder: Path

    def command(self, main: str, *arguments: str) -> list[str]:
        log4j = self.folder / "log4j.properties"
        log4j.write_text("log4j.rootLogger=OFF\n")
        options = ["-Xmx256M", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"]
        classpath = ":".join(map(str, sorted(self.libs.glob("*.jar"))))
        return [
            find_java(),
            *options,
            f"-Dlog4j.configuration=file:{log4j}",
            "-cp",
            classpath,
            main,
            *arguments,
        ]

    def run(self, main: str, *arguments: str, stdin: str = "") -> str:
        return run(self.command(main, *arguments), stdin=stdin)

    @contextmanager
    def consumer(self, group: str, topic: str, *arguments: str, **settings: str) -> Iterator[JavaConsumer]:
        """A high-level consumer that prints values, until the block ends.

        Without ``--from-beginning`` it starts at the end of partitions whose offset isn't committed.
        """
        config = self.folder / f"consumer-{next(_numbers)}.properties"
        names = {name.replace("_", "."): value for name, value in settings.items()}
        lines = {**JAVA_SETTINGS, "group.id": group, "zookeeper.connect": self.cluster.connect, **names}
        config.write_text("".join(f"{name}={value}\n" for name, value in lines.items()))
        output = config.with_suffix(".out")
        with open(output, "wb") as out:
            process = subprocess.Popen(
                self.command(
                    "kafka.tools.ConsoleConsumer",
                    *(
                        "--zookeeper",
                        self.cluster.connect,
                        "--topic",
                        topic,
                        "--consumer.config",
                        str(config),
                        *arguments,
                    ),
                ),
                stdout=out,
                stderr=subprocess.STDOUT,
            )
        try:
            yield JavaConsumer(process, output)
        finally:
            process.terminate()  # then it closes its session
            try:
                process.wait(60)
            finally:
                process.kill()
                process.wait()


@dataclass(frozen=True)
class JavaConsumer:
    process: subprocess.Popen[bytes]
    output: Path

    def values(self) -> set[str]:
        return {line for line in self.output.read_text().splitlines() if line.startswith("v")}


@pytest.fixture(scope="module")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    settings = {"offsets.topic.replication.factor": 1}
    made = Cluster(tmp_path_factory.mktemp("brokers"), zookeeper, brokers=1, settings=settings)
    made.start()
    yield made
    made.kill()
    assert not made.complaints()


@pytest.fixture(params=SCALA)
def old(request: pytest.FixtureRequest, cluster: Cluster, tmp_path: Path) -> Old:
    version = str(request.param)
    try:
        libs = maven.jars(f"kafka-{version}", [f"org.apache.kafka:kafka_{SCALA[version]}:{version}"])
    except Unavailable as lack:
        pytest.skip(str(lack))
    return Old(version, libs, cluster, tmp_path)


@pytest.fixture
def topic(cluster: Cluster) -> str:
    name = f"t{next(_numbers)}"
    create_topic(cluster.brokers[1], name, PARTITIONS)
    return name


@pytest.fixture
def nodes(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.connect, timeout=30)
    client.start(60)
    yield client
    client.stop()
    client.close()


async def until(condition: Callable[[], object], what: str) -> None:
    try:
        async with asyncio.timeout(60):
            while not condition():
                await asyncio.sleep(0.05)
    except TimeoutError:
        pytest.fail(f"waited a minute for {what}")


async def test_a_moved_broker_is_read_by_java_and_python(
    old: Old, cluster: Cluster, topic: str, nodes: KazooClient
) -> None:
    """The cluster's broker comes back under its id on another port: "without affecting consumers"."""
    broker = cluster.brokers[1]

    async def send(value: str) -> None:
        async with Producer(cluster.bootstrap) as producer:
            for number in range(PARTITIONS):
                await producer.send_and_wait(topic, f"{value}{number}".encode(), partition=number)

    seen: set[str] = set()
    groups = {kind: f"g{topic}-{kind}" for kind in ("java", "python")}
    consumer = ZookeeperConsumer(
        topic, zookeeper_connect=cluster.connect, group_id=groups["python"], **PATIENCE
    )
    await send("v-before-")
    async with consumer:

        async def read() -> None:
            async for record in consumer:
                seen.add((record.value or b"").decode())

        reading = asyncio.create_task(read())
        with old.consumer(groups["java"], topic, "--from-beginning") as java:
            await until(lambda: len(java.values()) == len(seen) == PARTITIONS, "the first records")
            await asyncio.to_thread(broker.stop)
            broker.port = free_port()
            await asyncio.to_thread(broker.start)
            await send("v-after-")
            await until(lambda: len(seen) == 2 * PARTITIONS, "the bundled consumer")
            await until(lambda: len(java.values()) == 2 * PARTITIONS, "Java's consumer")
            assert seen == java.values()
    await asyncio.wait([reading], timeout=60)


async def test_members_in_java_and_python_share_a_group(old: Old, topic: str, nodes: KazooClient) -> None:
    group = f"g{topic}"
    every = {TopicPartition(topic, number) for number in range(PARTITIONS)}
    seen: list[str] = []
    sent = itertools.count()

    def owners() -> dict[str, str]:
        path = f"/consumers/{group}/owners/{topic}"
        found: dict[str, str] = {}
        for number in nodes.get_children(path) if nodes.exists(path) else []:
            with suppress(NoNodeError):
                found[number] = nodes.get(f"{path}/{number}")[0].decode()
        return found

    def shares() -> list[int]:
        """How many partitions each member has."""
        return sorted(Counter(owners().values()).values())

    async def send(producer: Producer) -> set[str]:
        values = {f"v{next(sent)}" for _ in range(20)}
        for number, value in enumerate(sorted(values)):
            await producer.send_and_wait(topic, value.encode(), partition=number % PARTITIONS)
        return values

    async def read(consumer: ZookeeperConsumer) -> None:
        async for record in consumer:
            assert record.value is not None
            seen.append(record.value.decode())

    async with (
        Producer(old.cluster.bootstrap) as producer,
        ZookeeperConsumer(
            topic, zookeeper_connect=old.cluster.connect, group_id=group, consumer_id="python", **PATIENCE
        ) as python,
    ):
        reading = asyncio.create_task(read(python))
        assert python.assignment() == every
        first = await send(producer)
        await until(lambda: first <= set(seen), "all records")
        with old.consumer(group, topic) as java:
            # Java's consumer comes: half of the partitions each.
            await until(lambda: shares() == [2, 2], "fair shares")
            assert sum(owner == f"{group}_python-0" for owner in owners().values()) == 2
            values = await send(producer)
            await until(lambda: values <= set(seen) | java.values(), "all records")
            assert java.values() & values
            assert set(seen) & values
            assert not java.values() & set(seen)
            # Another one in Python, and it goes again.
            async with ZookeeperConsumer(
                topic, zookeeper_connect=old.cluster.connect, group_id=group, **PATIENCE
            ) as other:
                other_reading = asyncio.create_task(read(other))
                await asyncio.sleep(0)  # it begins before the consumer is closed
                await until(lambda: shares() == [1, 1, 2], "three shares")
            await other_reading
            await until(lambda: shares() == [2, 2], "two shares again")
            more = await send(producer)
            await until(lambda: more <= set(seen) | java.values(), "all records")
            # Java's consumer goes, with its offsets committed.
            java.process.send_signal(signal.SIGTERM)
            await until(lambda: python.assignment() == every, "all partitions")
            last = await send(producer)
            await until(lambda: last <= set(seen), "all records")
            assert not java.values() & last
        reading.cancel()
    assert len(seen) == len(set(seen))


async def test_offsets_in_kafka(old: Old, topic: str) -> None:
    """ConsumerMetadata, OffsetCommit 1 and OffsetFetch 1 of the consumers themselves, and dual commit."""
    group = f"g{topic}"
    partition = TopicPartition(topic, 1)
    async with Producer(old.cluster.bootstrap) as producer, Admin(old.cluster.bootstrap) as admin:
        for number in range(5):
            await producer.send_and_wait(topic, b"v%d" % number, partition=1)
        committed: dict[TopicPartition, int] = {}

        async def ask() -> None:
            found = await admin.list_group_offsets(group)
            committed.update({each: offset.offset for each, offset in found.items()})

        both = {"offsets_storage": "kafka", "dual_commit_enabled": "true"}
        with old.consumer(group, topic, "--from-beginning", **both) as java:
            await until(lambda: len(java.values()) == 5, "the records")
            async with asyncio.timeout(60):
                while committed.get(partition) != 5:
                    await ask()
                    await asyncio.sleep(0.05)
            async with asyncio.timeout(60):
                while await admin.list_zookeeper_offsets(group, [partition]) != {partition: 5}:
                    await asyncio.sleep(0.05)
    # The bundled consumer continues from there.
    async with ZookeeperConsumer(
        topic, zookeeper_connect=old.cluster.connect, group_id=group, offsets_storage="kafka", **PATIENCE
    ) as consumer:
        async with Producer(old.cluster.bootstrap) as producer:
            await producer.send_and_wait(topic, b"v5", partition=1)
        record = await asyncio.wait_for(consumer.getone(), 60)
        assert (record.value, record.offset) == (b"v5", 5)


async def test_tools(old: Old, topic: str) -> None:
    """The producer, the simple consumer, and the tools around them."""
    broker = old.cluster.bootstrap
    old.run("kafka.tools.ConsoleProducer", "--broker-list", broker, "--topic", topic, stdin="v1\nv2\nv3\n")
    ends = old.run("kafka.tools.GetOffsetShell", "--broker-list", broker, "--topic", topic, "--time", "-1")
    counts = {int(number): int(end) for _, number, end in (line.split(":") for line in ends.split())}
    assert sum(counts.values()) == 3
    partition = next(number for number, count in counts.items() if count)
    shell = ["--broker-list", broker, "--topic", topic, "--partition", str(partition)]
    read = old.run("kafka.tools.SimpleConsumerShell", *shell, "--max-messages", str(counts[partition]))
    assert [line for line in read.splitlines() if line.startswith("v")]
    group = f"g{topic}"
    async with ZookeeperConsumer(
        topic, zookeeper_connect=old.cluster.connect, group_id=group, **PATIENCE
    ) as consumer:
        assert {(await consumer.getone()).value for _ in range(3)} == {b"v1", b"v2", b"v3"}
    tool = ["--zookeeper", old.cluster.connect, "--group", group, "--topic", topic]
    checked = old.run("kafka.tools.ConsumerOffsetChecker", *tool)
    rows = [line.split() for line in checked.splitlines() if line.startswith(group)]
    assert len(rows) == PARTITIONS
    for _, _, number, offset, size, lag, owner in rows:
        assert (int(offset), int(size), lag, owner) == (counts[int(number)], counts[int(number)], "0", "none")


async def test_tools_that_write_zookeepers_nodes(old: Old, nodes: KazooClient) -> None:
    """Topics are made and grow, and offsets are saved and restored, without a request to a broker."""
    topic, where = f"made{next(_numbers)}", ("--zookeeper", old.cluster.connect)
    group, saved = f"g{topic}", old.folder / "offsets"
    topics = ("kafka.admin.TopicCommand", *where, "--topic", topic)
    old.run(*topics, "--create", "--partitions", "2", "--replication-factor", "1")
    old.run(*topics, "--alter", "--partitions", "3")
    async with Admin(old.cluster.bootstrap) as admin, asyncio.timeout(60):
        while len((await admin.describe_topics([topic]))[topic].partitions) < 3:
            await asyncio.sleep(0.05)
    async with Producer(old.cluster.bootstrap) as producer:
        for number in range(3):
            await producer.send_and_wait(topic, b"v", partition=number)
    described = old.run(*topics, "--describe")
    assert described.count("Leader: 1") == 3
    async with ZookeeperConsumer(
        topic, zookeeper_connect=old.cluster.connect, group_id=group, **PATIENCE
    ) as consumer:
        for _ in range(3):
            await consumer.getone()
    of_group = ("--zkconnect", old.cluster.connect)
    old.run("kafka.tools.ExportZkOffsets", *of_group, "--group", group, "--output-file", str(saved))
    path = f"/consumers/{group}/offsets/{topic}"
    assert sorted(saved.read_text().split()) == [f"{path}/{number}:1" for number in range(3)]
    saved.write_text(f"{path}/0:0\n")
    old.run("kafka.tools.ImportZkOffsets", *of_group, "--input-file", str(saved))
    assert [nodes.get(f"{path}/{number}")[0] for number in range(3)] == [b"0", b"1", b"1"]
