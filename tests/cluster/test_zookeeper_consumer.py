"""The ZooKeeper consumer on a real ZooKeeper: shares, several streams, filters, expired sessions and migrations."""

from __future__ import annotations

import asyncio
import itertools
import json
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.client import KazooClient
from tests.cli.ottla_command import Ottla
from tests.docs.pages import ROOT, blocks, marked
from tests.support.cluster import Cluster
from tests.support.topics import create_topic
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import Admin, Consumer, Producer, TopicPartition, Whitelist, ZookeeperConsumer
from ottla_client.admin import NewPartitions
from ottla_client.errors import ConfigurationError, GroupError, RebalanceFailedError
from ottla_client.sync import Producer as SyncProducer
from ottla_client.sync import ZookeeperConsumer as SyncZookeeperConsumer

_numbers = itertools.count(1)
QUICK: dict[str, Any] = {
    "auto_offset_reset": "smallest",
    "rebalance_backoff_ms": 200,
    "rebalance_max_retries": 150,
    "auto_commit_interval_ms": 50,
    "zookeeper_session_timeout_ms": 20_000,  # a busy machine must not end a session
    "zookeeper_connection_timeout_ms": 60_000,
    "fetch_max_wait_ms": 20,
}


@pytest.fixture(scope="module")
def shared(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """One broker, for all tests of this file."""
    made = Cluster(
        tmp_path_factory.mktemp("consumers"),
        zookeeper,
        brokers=1,
        settings={"offsets.topic.replication.factor": 1},
    )
    made.start()
    yield made
    made.kill()
    assert not made.complaints()


@pytest.fixture
def topic(shared: Cluster) -> str:
    name = f"t{next(_numbers)}"
    create_topic(shared.brokers[1], name, 4)
    return name


@pytest.fixture
def group() -> str:
    return f"g{next(_numbers)}"


@pytest.fixture
def nodes(shared: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(shared.connect, timeout=30)
    client.start(60)
    yield client
    client.stop()
    client.close()


@asynccontextmanager
async def consuming(
    shared: Cluster, group: str, topic: str, seen: list[bytes], **options: Any
) -> AsyncIterator[ZookeeperConsumer]:
    """A consumer whose records go to ``seen``."""
    consumer = ZookeeperConsumer(
        topic, zookeeper_connect=shared.connect, group_id=group, **{**QUICK, **options}
    )
    await consumer.start()

    async def read() -> None:
        async for record in consumer:
            seen.append(record.value)  # noqa: PERF401

    task = asyncio.create_task(read())
    try:
        yield consumer
    finally:
        await consumer.close()
        await asyncio.wait([task], timeout=60)


async def until(condition: Callable[[], object], what: str) -> None:
    async with asyncio.timeout(60):
        while not condition():
            await asyncio.sleep(0.01)
    assert condition(), what


class Sending:
    """Sends numbered records, a few milliseconds apart, until it is stopped."""

    def __init__(self, shared: Cluster, topic: str) -> None:
        self._shared = shared
        self._topic = topic
        self._task: asyncio.Task[None] | None = None
        self._stopping = False
        self.sent: list[bytes] = []

    async def __aenter__(self) -> Sending:
        self._task = asyncio.create_task(self._run())
        return self

    async def _run(self) -> None:
        async with Producer(self._shared.bootstrap, linger_ms=0) as producer:
            for number in itertools.count():
                value = b"%d" % number
                await producer.send_and_wait(self._topic, value, partition=number % 4)
                self.sent.append(value)
                if self._stopping:
                    return  # not by a cancellation, which may come after a record is stored
                await asyncio.sleep(0.002)

    async def __aexit__(self, *_: object) -> None:
        await self.more(20)
        assert self._task is not None
        self._stopping = True
        await self._task

    async def more(self, count: int) -> None:
        target = len(self.sent) + count
        await until(lambda: len(self.sent) >= target, "records")


async def test_members_share_as_they_come_and_go(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    every = {TopicPartition(topic, number) for number in range(4)}
    seen: list[bytes] = []
    async with Sending(shared, topic) as sending:
        async with consuming(shared, group, topic, seen, consumer_id="one") as one:
            assert one.assignment() == every
            node = json.loads(nodes.get(f"/consumers/{group}/ids/{group}_one")[0])
            assert (node["version"], node["subscription"], node["pattern"]) == (1, {topic: 1}, "static")
            await sending.more(20)
            async with consuming(shared, group, topic, seen, consumer_id="two") as two:
                await until(lambda: len(one.assignment()) == len(two.assignment()) == 2, "fair shares")
                assert {each.partition for each in one.assignment()} == {0, 1}
                owner, stat = nodes.get(f"/consumers/{group}/owners/{topic}/3")
                assert owner == f"{group}_two-0".encode()
                assert stat.ephemeralOwner
                await sending.more(20)
            await until(lambda: one.assignment() == every, "all partitions again")
            options: dict[str, Any] = {"consumer_id": "one", "zookeeper_session_timeout_ms": 1_000}
            with pytest.raises(RebalanceFailedError, match=f"{group}_one is taken"):
                async with consuming(shared, group, topic, [], **options):
                    pass
        async with consuming(shared, group, topic, seen):
            await until(lambda: len(seen) >= len(sending.sent), "the records")
    # The last consumer has committed, so nothing is left for another one but what came after.
    async with consuming(shared, group, topic, seen):
        await until(lambda: set(sending.sent) <= set(seen), "all records")
    assert sorted(seen, key=int) == sorted(sending.sent, key=int)  # none twice: all were stopped cleanly


async def test_streams_filters_and_new_partitions(shared: Cluster, group: str) -> None:
    first, second = f"{group}.a", f"{group}.b"
    create_topic(shared.brokers[1], first, 2)
    consumer = ZookeeperConsumer(zookeeper_connect=shared.connect, group_id=group, **QUICK)
    async with consumer, Admin(shared.bootstrap) as admin:
        with pytest.raises(ConfigurationError, match="create_streams"):
            await consumer.getone()
        streams = await consumer.create_streams_by_filter(Whitelist(f"{group}[.].*"), 2)
        with pytest.raises(ConfigurationError, match="once"):
            await consumer.create_streams({first: 1})
        assert [len(stream.assignment()) for stream in streams] == [1, 1]
        create_topic(shared.brokers[1], second, 1)
        await until(lambda: TopicPartition(second, 0) in consumer.assignment(), "the new topic")
        await admin.create_partitions({first: NewPartitions(4)})
        await until(lambda: len(consumer.assignment()) == 5, "the new partitions")
        async with Producer(shared.bootstrap) as producer:
            for number in range(4):
                await producer.send_and_wait(first, b"%d" % number, partition=number)
        values = [
            sorted(
                [
                    (await asyncio.wait_for(stream.getone(), 60)).value,
                    (await asyncio.wait_for(stream.getone(), 60)).value,
                ]
            )
            for stream in streams
        ]
        assert values == [[b"0", b"1"], [b"2", b"3"]]


async def test_added_partitions_are_read_from_their_start(shared: Cluster, topic: str, group: str) -> None:
    """The consumer starts at the end of those that it finds, and was there before the first record of the others."""
    seen: list[bytes] = []
    async with Admin(shared.bootstrap) as admin, Producer(shared.bootstrap) as producer:
        await producer.send_and_wait(topic, b"old", partition=0)
        async with consuming(shared, group, topic, seen, auto_offset_reset="largest") as consumer:
            await admin.create_partitions({topic: NewPartitions(6)})
            async with Producer(shared.bootstrap) as fresh:
                await fresh.send_and_wait(topic, b"early", partition=5)
            await until(lambda: len(consumer.assignment()) == 6, "the new partitions")
            await until(lambda: seen, "the record")
        assert seen == [b"early"]


async def test_an_expired_session_begins_again(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    seen: list[bytes] = []
    async with (
        Sending(shared, topic) as sending,
        consuming(shared, group, topic, seen, consumer_id="one") as consumer,
    ):
        await until(lambda: seen, "records")
        # Another connection ends the session, as ZooKeeper does when it hears nothing.
        client = consumer._zookeeper._client
        before = consumer._zookeeper.session
        intruder = KazooClient(shared.connect, client_id=client.client_id, timeout=30)
        intruder.start(60)
        intruder.stop()
        intruder.close()
        await until(lambda: consumer._zookeeper.session not in (0, before), "a new session")
        await until(lambda: len(consumer.assignment()) == 4, "the partitions")
        assert (
            nodes.exists(f"/consumers/{group}/ids/{group}_one").ephemeralOwner == consumer._zookeeper.session
        )
        await sending.more(20)
        await until(lambda: set(sending.sent) <= set(seen), "all records")


ROUNDS = {
    "kafka": [{"offsets_storage": "kafka", "dual_commit_enabled": True}, {"offsets_storage": "kafka"}],
    "zookeeper": [
        {"offsets_storage": "zookeeper", "dual_commit_enabled": True},
        {"offsets_storage": "zookeeper"},
    ],
}


async def test_offsets_migrate_by_rolling_bounces_and_back(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    """Two members are restarted one after the other, each time with the seeds' next setting, while records flow."""
    seen: list[bytes] = []
    stops: list[asyncio.Event] = [asyncio.Event(), asyncio.Event()]
    running: list[asyncio.Task[None]] = []

    async def member(options: dict[str, Any], stop: asyncio.Event, ready: asyncio.Event) -> None:
        async with consuming(shared, group, topic, seen, **options):
            ready.set()
            await stop.wait()

    async def bounce(index: int, options: dict[str, Any]) -> None:
        if len(running) > index:
            stops[index].set()
            await running[index]
            stops[index] = asyncio.Event()
        ready = asyncio.Event()
        task = asyncio.create_task(member(options, stops[index], ready))
        running[index : index + 1] = [task]
        await until(ready.is_set, "the member")
        await sending.more(10)

    async with Sending(shared, topic) as sending:
        for target in (None, "kafka", "zookeeper"):
            for options in [{}] if target is None else ROUNDS[target]:
                for index in range(2):
                    await bounce(index, options)
            if target == "kafka":
                async with Admin(shared.bootstrap) as admin:
                    in_kafka = await admin.list_group_offsets(group)
                old = {
                    each: int(nodes.get(f"/consumers/{group}/offsets/{topic}/{each.partition}")[0])
                    for each in in_kafka
                }
                assert len(in_kafka) == 4
                assert all(in_kafka[each].offset > old[each] for each in in_kafka)
        await until(lambda: set(sending.sent) <= set(seen), "all records")
        for stop in stops:
            stop.set()
        await asyncio.gather(*running)
    async with consuming(shared, group, topic, seen):
        await until(lambda: set(sending.sent) <= set(seen), "all records")
    assert sorted(seen, key=int) == sorted(sending.sent, key=int)  # none lost, and none twice


async def refusal(member: Consumer) -> None:
    """Poll until the group refuses the member, which raises GroupError."""
    async with asyncio.timeout(60):
        while True:
            await member.poll(50)


async def test_a_group_of_another_generation_is_refused(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    async with Consumer(topic, bootstrap_servers=shared.bootstrap, group_id=group) as member:
        while not member.assignment():
            await member.poll(50)
        with pytest.raises(GroupError, match="is held by 1 members of the classic protocol"):
            async with consuming(shared, group, topic, []):
                pass
    nodes.create(f"/ottla/coordinated/{group}", b"1", makepath=True)
    with pytest.raises(GroupError, match="registered with the coordinator of 2012 at broker 1"):
        async with consuming(shared, group, topic, []):
            pass
    nodes.delete(f"/ottla/coordinated/{group}")
    async with consuming(shared, group, topic, []):
        for protocol, reason in (
            ("classic", "INCONSISTENT_GROUP_PROTOCOL"),
            ("consumer", "held by 1 consumers"),
        ):
            options: dict[str, Any] = {"group_id": group, "group_protocol": protocol}
            async with Consumer(topic, bootstrap_servers=shared.bootstrap, **options) as member:
                with pytest.raises(GroupError, match=reason):
                    await refusal(member)
    refused = [each for each in shared.brokers[1].events() if "a member was refused" in str(each["event"])]
    assert {each["protocol"] for each in refused} == {"classic", "consumer"}
    assert {each["held_by"] for each in refused} == {"1 consumers that coordinate in ZooKeeper"}


async def test_owners_that_a_dead_coordinator_left_hold_no_one_up(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    """The coordinator of 2012 writes persistent owners; it died with its consumers, and there is no other."""
    nodes.create(f"/consumers/{group}/owners/{topic}/1", f"{group}_dead-0".encode(), makepath=True)
    async with consuming(shared, group, topic, []) as consumer:
        assert len(consumer.assignment()) == 4
        assert nodes.get(f"/consumers/{group}/owners/{topic}/1")[1].ephemeralOwner


def test_without_asyncio_and_on_the_command_line(
    shared: Cluster, topic: str, group: str, nodes: KazooClient
) -> None:
    ottla = Ottla(shared.bootstrap)
    options: dict[str, Any] = {"zookeeper_connect": shared.connect, "group_id": group, **QUICK}
    with SyncZookeeperConsumer(**options) as consumer:
        streams = consumer.create_streams({topic: 2})[topic]

        async def send() -> None:
            async with Producer(shared.bootstrap) as producer:
                for number in range(4):
                    await producer.send_and_wait(topic, b"%d" % number, partition=number)

        asyncio.run(send())
        values: list[list[bytes]] = [[], []]

        def read(index: int) -> None:
            for record in streams[index]:
                values[index].append(record.value)
                if len(values[index]) == 2:
                    break

        threads = [threading.Thread(target=read, args=(index,)) for index in range(2)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
        assert [sorted(each) for each in values] == [[b"0", b"1"], [b"2", b"3"]]
        (row,) = ottla.json("groups", "list", group, "--zookeeper", shared.connect)
        assert (row["generation"], row["state"], row["members"]) == ("zookeeper", "Stable", 1)
        refused = ottla.fails("groups", "migrate-offsets", group, "--to", "kafka", "--execute")
        assert "has 1 member" in refused
        assert "stop its consumers" in refused
    (row,) = ottla.json("groups", "list", group, "--zookeeper", shared.connect)
    assert row["state"] == "Empty"
    moved = ottla.json("groups", "migrate-offsets", group, "--to", "kafka", "--execute")
    assert [(each["old_offset"], each["new_offset"]) for each in moved] == [(None, 1)] * 4
    nodes.delete(f"/consumers/{group}/offsets", recursive=True)
    back = ottla.json("groups", "migrate-offsets", group, "--to", "zookeeper", "--execute")
    assert [(each["old_offset"], each["new_offset"]) for each in back] == [(None, 1)] * 4
    assert nodes.get(f"/consumers/{group}/offsets/{topic}/3")[0] == b"1"


async def test_bad_nodes_and_options(
    shared: Cluster, topic: str, group: str, nodes: KazooClient, tmp_path: Path
) -> None:
    with pytest.raises(ConfigurationError, match="auto_offset_reset is 'earliest'"):
        ZookeeperConsumer(
            zookeeper_connect=shared.connect,
            group_id=group,
            auto_offset_reset="earliest",  # type: ignore[arg-type]
        )
    for name in ("", "a/b", ".."):
        with pytest.raises(ConfigurationError, match="names a node in ZooKeeper"):
            ZookeeperConsumer(zookeeper_connect=shared.connect, group_id=name)
    nodes.create(f"/consumers/{group}/ids/{group}_mad", b"{", makepath=True)
    nodes.create(f"/consumers/{group}/offsets/{topic}/2", b"many", makepath=True)
    with pytest.raises(Exception, match=f"/consumers/{group}/offsets/{topic}/2 is not an offset: b'many'"):
        async with consuming(shared, group, topic, [], rebalance_max_retries=1):
            pass
    nodes.set(f"/consumers/{group}/offsets/{topic}/2", b"0")
    async with consuming(shared, group, topic, []) as consumer:  # the mad member is left out
        assert len(consumer.assignment()) == 4


def test_the_programs_on_the_pages(shared: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    page = ROOT / "docs/old-consumers.md"
    create_topic(shared.brokers[1], "telegrams", 1)
    source = marked(page, "file")["high_level.py"]
    source = source.replace("127.0.0.1:9092", shared.bootstrap).replace("127.0.0.1:2181", shared.connect)
    exec(compile(source, "<docs/old-consumers.md>", "exec"), {"__name__": "__main__"})
    assert capsys.readouterr().out == marked(page, "output")["high_level.py"]
    create_topic(shared.brokers[1], "orders", 2)
    with SyncProducer(shared.bootstrap) as producer:
        producer.send_and_wait("orders", b"one")
    command = next(each for each in blocks(ROOT / "docs/generations.md", "sh") if "ZookeeperConsumer" in each)
    program = shlex.split(command)[-1].replace("127.0.0.1:2181", shared.connect)
    exec(compile(program, "<docs/generations.md>", "exec"), {})
    assert "value=b'one'" in capsys.readouterr().out
