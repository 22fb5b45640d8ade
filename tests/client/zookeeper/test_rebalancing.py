"""The group's algorithms as a state machine: any order of requests, events, crashes and session expiries."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Collection, Mapping
from typing import Any

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from tests.client.zookeeper.memory import Memory, Server
from tests.support.depth import examples

from ottla_client import Blacklist, TopicPartition, Whitelist
from ottla_client.errors import ClientError, RebalanceFailedError
from ottla_client.zookeeper_consumer import paths
from ottla_client.zookeeper_consumer.assignors import STRATEGIES
from ottla_client.zookeeper_consumer.rebalancer import Rebalancer
from ottla_client.zookeeper_consumer.subscription import Subscription, ThreadId, TopicFilter

GROUP = "g"
TOPICS = ("a", "ab", "b")
FILTERS = (Whitelist("a.*"), Whitelist("a|b"), Blacklist("a"), Blacklist("b,ab"))


class Reader:
    """What a consumer reads, checked against the owner registry whenever that changes."""

    def __init__(self, registry: Memory) -> None:
        self.registry = registry
        self.reading: dict[TopicPartition, ThreadId] = {}
        self.errors: list[ClientError] = []

    async def stop(self, partitions: Collection[TopicPartition]) -> None:
        await self.registry.ask(lambda: None)  # the commit
        for partition in partitions:
            self.reading.pop(partition, None)

    def note(self, sizes: Mapping[str, int]) -> None:
        pass

    async def start(self, assigned: Mapping[TopicPartition, ThreadId]) -> None:
        await self.registry.ask(lambda: None)  # the committed offsets
        self.reading.update(assigned)

    def lose(self) -> None:
        self.reading.clear()

    def report(self, error: ClientError) -> None:
        self.errors.append(error)


class Consumer:
    def __init__(self, world: Group, name: str, subscription: Subscription) -> None:
        self.registry = Memory(world.server)
        self.reader = Reader(self.registry)
        self.subscription = subscription
        self.name = name
        self.rebalancer = Rebalancer(
            self.registry,
            self.reader,
            group_id=GROUP,
            consumer_id=name,
            subscription=subscription,
            assign=world.assign,
            exclude_internal=True,
            max_retries=3,
            backoff_ms=2_000,
            registration_ms=6_000,
            now_ms=lambda: 0,
            wait=world.wait,
        )
        self.leaving = False
        self.refused = ""
        self.task = world.loop.create_task(self._run(world))

    async def _run(self, world: Group) -> None:
        try:
            await self.rebalancer.start()
        except RebalanceFailedError as error:
            self.refused = str(error)
            await self._close()  # as the application does

    async def _close(self) -> None:
        self.leaving = True
        await self.rebalancer.close()
        self.registry.alive = False

    async def leave(self) -> None:
        self.leaving = True
        self.task.cancel()
        await asyncio.gather(self.task, return_exceptions=True)
        await self._close()


class Group(RuleBasedStateMachine):
    strategy = "range"

    def __init__(self) -> None:
        super().__init__()
        self.loop = asyncio.new_event_loop()
        self.server = Server()
        self.assign = STRATEGIES[self.strategy]
        self.sleepers: list[asyncio.Future[None]] = []
        self.consumers: list[Consumer] = []
        self.crashed: list[int] = []
        self.closing: list[asyncio.Task[None]] = []
        self.names = 0
        self.sizes = {"a": 3, "b": 2}
        self.server.put(paths.broker("1"), b"{}")
        for topic in self.sizes:
            self._write_topic(topic)

    def _write_topic(self, topic: str) -> None:
        partitions = {str(number): [1] for number in range(self.sizes[topic])}
        self.server.put(paths.topic(topic), json.dumps({"version": 3, "partitions": partitions}).encode())

    async def wait(self, event: asyncio.Event, seconds: float) -> bool:
        """A pause that ends when the test says that time passes."""
        sleeper: asyncio.Future[None] = self.loop.create_future()
        self.sleepers.append(sleeper)
        woken = self.loop.create_task(event.wait())
        try:
            await asyncio.wait((sleeper, woken), return_when=asyncio.FIRST_COMPLETED)
        finally:
            woken.cancel()
            if sleeper in self.sleepers:
                self.sleepers.remove(sleeper)
        return event.is_set()

    def run(self) -> None:
        async def turns() -> None:
            for _ in range(12):
                await asyncio.sleep(0)

        self.loop.run_until_complete(turns())

    @property
    def live(self) -> list[Consumer]:
        return [each for each in self.consumers if not each.leaving]

    @precondition(lambda self: len(self.live) < 4)
    @rule(
        topics=st.dictionaries(st.sampled_from(TOPICS), st.integers(1, 2), min_size=1, max_size=2),
        topic_filter=st.none() | st.sampled_from(FILTERS),
        streams=st.integers(1, 2),
    )
    def join(self, topics: dict[str, int], topic_filter: TopicFilter | None, streams: int) -> None:
        wanted = (
            Subscription.to_topics(topics)
            if topic_filter is None
            else Subscription.by_filter(topic_filter, streams)
        )
        self.names += 1
        self.consumers.append(Consumer(self, f"{GROUP}_c{self.names}", wanted))
        self.run()

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 3))
    def leave(self, index: int) -> None:
        consumer = self.live[index % len(self.live)]
        consumer.leaving = True
        self.closing.append(self.loop.create_task(consumer.leave()))
        self.run()

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 3))
    def crash(self, index: int) -> None:
        """The process dies; ZooKeeper doesn't know yet."""
        consumer = self.live[index % len(self.live)]
        consumer.leaving = True
        consumer.registry.alive = False
        consumer.task.cancel()
        if consumer.rebalancer._task is not None:
            consumer.rebalancer._task.cancel()
        consumer.reader.reading.clear()
        self.crashed.append(consumer.registry.session)
        self.run()

    @precondition(lambda self: self.crashed)
    @rule()
    def bury(self) -> None:
        """ZooKeeper ends the session of a process that has died."""
        self.server.expire(self.crashed.pop())
        self.run()

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 3))
    def expire(self, index: int) -> None:
        self.live[index % len(self.live)].registry.expire()
        self.run()

    @precondition(lambda self: self.live)
    @rule(index=st.integers(0, 3), too_long=st.booleans())
    def reconnect(self, index: int, too_long: bool) -> None:
        """The connection breaks and is made again, maybe so late that the consumer takes its session for ended."""
        registry = self.live[index % len(self.live)].registry
        if too_long:
            registry.on_lost()
        registry.on_session()
        self.run()

    @precondition(lambda self: self.sizes["a"] < 6)
    @rule(topic=st.sampled_from(TOPICS))
    def grow(self, topic: str) -> None:
        self.sizes[topic] = self.sizes.get(topic, 0) + 1
        self._write_topic(topic)
        self.run()

    @rule()
    def brokers_change(self) -> None:
        path = paths.broker("2")
        if path in self.server.nodes:
            self.server.remove(path)
        else:
            self.server.put(path, b"{}")
        self.run()

    @precondition(lambda self: self.server.pending)
    @rule(choices=st.lists(st.integers(0, 7), min_size=1, max_size=12))
    def requests(self, choices: list[int]) -> None:
        """Some requests are carried out, in any order over the consumers."""
        for index in choices:
            if self.server.pending:
                self.server.step(index)
                self.run()
                self.one_reader()

    @precondition(lambda self: self.server.events)
    @rule(index=st.integers(0, 7))
    def event(self, index: int) -> None:
        self.server.deliver(index)
        self.run()

    @precondition(lambda self: self.sleepers)
    @rule()
    def time_passes(self) -> None:
        for sleeper in self.sleepers[:]:
            if not sleeper.done():
                sleeper.set_result(None)
        self.run()

    @rule()
    def rest(self) -> None:
        """Nothing else happens until the group has come to rest; only the dead may stand in its way."""
        self._run_to_rest()
        if not self.crashed:
            self._check_at_rest()

    @invariant()
    def one_reader(self) -> None:
        """The reader of a partition is its owner in ZooKeeper; a partition has one owner, so it has one reader."""
        for consumer in self.consumers:
            for partition, thread in consumer.reader.reading.items():
                node = self.server.nodes.get(paths.owner(GROUP, partition))
                assert node is not None, f"{thread} reads {partition}, which has no owner"
                assert (node.session, node.data) == (consumer.registry.session, str(thread).encode())

    def teardown(self) -> None:
        try:
            self._quiet()
        finally:
            for task in asyncio.all_tasks(self.loop):
                task.cancel()
            self.run()
            self.loop.close()

    def _quiet(self) -> None:
        """When nothing more happens, every partition that somebody wants has its one owner."""
        while self.crashed:
            self.bury()
        self._run_to_rest()
        self._check_at_rest()

    def _run_to_rest(self) -> None:
        """Answer everything. While a dead owner is in the way, its group never rests, so that ends after a while."""
        for _ in range(200 if self.crashed else 20_000):
            self.run()
            if self.server.events:
                self.server.deliver(0)
            elif self.server.pending:
                self.server.step(0)
            elif self.sleepers:
                self.time_passes()
            else:
                break
            self.one_reader()
        else:
            assert self.crashed, "the group never comes to rest"

    def _check_at_rest(self) -> None:
        for task in self.closing:
            assert task.done()
            task.result()
        live = self.live
        threads: dict[str, list[ThreadId]] = {}
        for consumer in live:
            assert consumer.rebalancer.settled.is_set()
            for topic, count in consumer.subscription.topics(self.sizes, exclude_internal=True).items():
                threads.setdefault(topic, []).extend(ThreadId(consumer.name, i) for i in range(count))
        expected = self.assign({topic: range(size) for topic, size in self.sizes.items()}, threads)
        read: dict[TopicPartition, ThreadId] = {}
        for consumer in live:
            assert not read.keys() & consumer.reader.reading.keys()
            read.update(consumer.reader.reading)
        assert read == expected
        owners = f"{paths.CONSUMERS}/{GROUP}/owners/"
        owned = {
            path: node.data for path, node in self.server.nodes.items() if node.session and owners in path
        }
        assert owned == {
            paths.owner(GROUP, partition): str(thread).encode() for partition, thread in expected.items()
        }
        assert set(self.server.children(paths.members(GROUP))) == {consumer.name for consumer in live}


class RoundRobinGroup(Group):
    strategy = "roundrobin"


_FEW: Any = settings(max_examples=examples(25), stateful_step_count=30, deadline=None)
TestRange = Group.TestCase
TestRange.settings = _FEW
TestRoundRobin = RoundRobinGroup.TestCase
TestRoundRobin.settings = _FEW


def test_an_owner_that_never_releases_is_named_and_the_group_goes_on() -> None:
    group = Group()
    stranger = Memory(group.server)
    owner = paths.owner(GROUP, TopicPartition("a", 1))
    group.server.put(owner, b"g_gone-0", stranger.session)
    group.join({"a": 1}, None, 1)
    group.join({"b": 1}, None, 1)
    waits, goes_on = group.consumers
    for _ in range(400):
        group.run()
        if group.server.events:
            group.server.deliver(0)
        elif group.server.pending:
            group.server.step(0)
        elif group.sleepers:
            group.time_passes()
    assert waits.refused.endswith(
        "can't take its partitions after 3 tries: another consumer of group g doesn't release them. The owner of a-1"
        " is g_gone-0"
    )
    assert waits.reader.reading == {}
    assert goes_on.reader.reading.keys() == {TopicPartition("b", 0), TopicPartition("b", 1)}
    group.server.expire(stranger.session)
    group.teardown()
