"""Random members of both protocols on virtual time: no partition has two owners, and in the end each has one."""

from __future__ import annotations

from typing import Any

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.consumer_world import SESSION_MS, Client, ConsumerWorld, FakeTopics
from tests.coordinator.harness import Waiting
from tests.support.depth import examples

from ottla_broker.coordinator.group.group import Group
from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)

SUBSCRIPTIONS = [("t",), ("t", "u"), ("u",)]
INSTANCES = [None, None, None, "one", "two"]
ALLOWED = (
    ErrorCode.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)
REFUSALS = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.NOT_COORDINATOR, ErrorCode.REBALANCE_IN_PROGRESS)


class Classic:
    """A member of the classic protocol as its client keeps it: it gives up everything before it joins again.

    While the group is classic, its leader assigns, and joins again when topics change.
    """

    def __init__(self, topics: FakeTopics, subscribed: tuple[str, ...]) -> None:
        self.topics = subscribed
        self.member_id = ""
        self.generation = -1
        self.partitions: set[tuple[bytes, int]] = set()
        self._view = topics
        self._waiting: Waiting | None = None
        self._joining = False
        self._assigned_at: int | None = None
        """The version of the topics for which it has assigned partitions as the leader."""

    def beat(self, world: ConsumerWorld) -> None:
        """Take an answer if there is one; otherwise send what comes next."""
        if self._waiting is not None:
            self.hear(world)
            return
        if self.generation >= 0:
            code = world.heartbeat(self.member_id, self.generation)
            if code is ErrorCode.NONE and self._assigned_at in (None, self._view.version):
                return
            if code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.lose()
        self._join(world)

    def lose(self) -> None:
        self.member_id, self.generation, self._assigned_at = "", -1, None
        self.partitions = set()

    def forget_requests(self) -> None:
        """The connection has broken."""
        self._waiting = None

    def _join(self, world: ConsumerWorld) -> None:
        self.partitions = set()
        self.generation, self._assigned_at = -1, None
        data = encode_subscription(ConsumerProtocolSubscription(topics=list(self.topics)), 1)
        options: dict[str, Any] = {"protocols": (("range", data),), "session_ms": SESSION_MS}
        self._joining = True
        self._waiting = world.join(self.member_id, rebalance_ms=SESSION_MS, **options)
        self.hear(world)

    def hear(self, world: ConsumerWorld) -> None:
        if self._waiting is None or not self._waiting.done:
            return
        waiting, self._waiting = self._waiting, None
        answer = waiting.answer
        if not self._joining:
            if waiting.code is ErrorCode.NONE:
                self._take(answer.assignment)
            else:
                self.generation = -1
        elif waiting.code is ErrorCode.MEMBER_ID_REQUIRED:
            self.member_id = answer.member_id
            self._join(world)
        elif waiting.code is ErrorCode.NONE:
            self.member_id, self.generation = answer.member_id, answer.generation_id
            shares = None
            if answer.members:
                self._assigned_at = self._view.version
                shares = self._assign(answer.members)
            self._joining = False
            self._waiting = world.sync(self.member_id, self.generation, shares)
            world.clock.run_due()
            self.hear(world)
        else:
            assert waiting.code in REFUSALS, waiting.code
            self.generation = -1
            if waiting.code is ErrorCode.UNKNOWN_MEMBER_ID:
                self.lose()

    def _take(self, assignment: bytes) -> None:
        for each in decode_assignment(assignment).assigned_partitions if assignment else ():
            topic = self._view.find(each.topic)
            assert topic is not None
            self.partitions |= {(topic.topic_id, index) for index in each.partitions}

    def _assign(self, members: list[Any]) -> dict[str, bytes]:
        given: dict[str, list[TopicPartition]] = {member.member_id: [] for member in members}
        readers: dict[str, list[str]] = {}
        for member in members:
            for name in decode_subscription(member.metadata).topics:
                readers.setdefault(name, []).append(member.member_id)
        for name, its in readers.items():
            topic = self._view.find(name)
            for index, member_id in enumerate(its):
                indexes = list(range(0 if topic is None else topic.partitions))[index :: len(its)]
                if indexes:
                    given[member_id].append(TopicPartition(topic=name, partitions=indexes))
        return {
            member_id: encode_assignment(ConsumerProtocolAssignment(assigned_partitions=parts), 1)
            for member_id, parts in given.items()
        }


class Groups(RuleBasedStateMachine):
    """Clients own what their last answer gave them, until they give it up, die, or their session ends."""

    @initialize(assignors=st.sampled_from([("uniform", "range"), ("range", "uniform")]))
    def begin(self, assignors: tuple[str, ...]) -> None:
        self.topics = FakeTopics(t=5, u=2)
        self.world = ConsumerWorld(self.topics, assignors=assignors)
        self.clients: list[Client] = []
        self.classics: list[Classic] = []
        self.names = 0

    @precondition(lambda self: len(self.clients) < 6)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS), instance=st.sampled_from(INSTANCES), regex=st.booleans())
    def join(self, topics: tuple[str, ...], instance: str | None, regex: bool) -> None:
        if any(client.instance == instance for client in self.clients if instance):
            return
        self.names += 1
        client = Client(self.world, f"m{self.names}", topics=topics, instance=instance)
        if regex:
            client.topics, client.regex = None, "[" + "".join(topics) + "]"
        self.clients.append(client)
        self.beat(client)

    def beat(self, client: Client) -> None:
        client.world = self.world
        _, code = client.try_heartbeat()
        assert code in ALLOWED, code

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def one_heartbeat(self, data: st.DataObject) -> None:
        self.beat(data.draw(st.sampled_from(self.clients)))

    @precondition(lambda self: len(self.classics) < 3)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def classic_joins(self, topics: tuple[str, ...]) -> None:
        self.classics.append(Classic(self.topics, topics))
        self.classics[-1].beat(self.world)

    @precondition(lambda self: self.classics)
    @rule(data=st.data(), crashes=st.booleans())
    def classic_leaves(self, data: st.DataObject, crashes: bool) -> None:
        classic = data.draw(st.sampled_from(self.classics))
        self.classics.remove(classic)
        if not crashes and classic.member_id:
            self.world.leave(classic.member_id)
        self._hear()

    @rule()
    def all_heartbeats(self) -> None:
        for client in self.clients:
            self.beat(client)
        for classic in self.classics:
            classic.beat(self.world)
        self._hear()

    def _hear(self) -> None:
        self.world.clock.run_due()
        for classic in self.classics:
            classic.hear(self.world)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        client = data.draw(st.sampled_from(self.clients))
        client.topics, client.regex = topics, ""
        self.beat(client)

    @precondition(lambda self: self.clients)
    @rule(data=st.data(), for_a_while=st.booleans())
    def leave(self, data: st.DataObject, for_a_while: bool) -> None:
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        client.world = self.world
        client.leave(for_a_while=for_a_while and client.instance is not None)

    @precondition(lambda self: self.clients)
    @rule(data=st.data())
    def restart(self, data: st.DataObject) -> None:
        """A client dies and comes back under another id; a static one only once its session is over."""
        client = data.draw(st.sampled_from(self.clients))
        self.clients.remove(client)
        self.names += 1
        again = Client(self.world, f"m{self.names}", client.topics, client.instance, client.regex)
        self.clients.append(again)
        self.beat(again)

    @rule(seconds=st.sampled_from([1, 20, 46]))
    def time_passes(self, seconds: int) -> None:
        self.world.clock.advance(seconds)
        self._hear()
        self._expire()

    def _expire(self) -> None:
        """Clients whose session is over have stopped: a real client notices that before the broker does."""
        members = self.members()
        for client in self.clients:
            if client.epoch > 0 and client.member_id not in members:
                client.epoch, client.owned = 0, {}
        for classic in self.classics:
            if classic.generation >= 0 and classic.member_id not in members:
                classic.lose()

    @rule(name=st.sampled_from("tu"), more=st.integers(1, 4))
    def partitions_are_added(self, name: str, more: int) -> None:
        found = self.topics.find(name)
        self.topics.put(name, more if found is None else min(found.partitions + more, 12))

    @rule()
    def failover(self) -> None:
        before = self.members()
        is_modern = isinstance(self.world.coordinator._groups.get("g"), ConsumerGroup)
        self.world = self.world.failover()
        for classic in self.classics:
            classic.forget_requests()
        if is_modern:
            assert self.members() == before

    def members(self) -> set[str]:
        group = self.world.coordinator._groups.get("g")
        if isinstance(group, Group):
            return set(group.members)
        return set(group.membership.members) if isinstance(group, ConsumerGroup) else set()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if not hasattr(self, "world"):
            return
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            for partition in client.partitions:
                assert owners.setdefault(partition, client.member_id) == client.member_id
        for classic in self.classics:
            for partition in classic.partitions:
                assert owners.setdefault(partition, classic.member_id) == classic.member_id
        group = self.world.coordinator._groups.get("g")
        if not isinstance(group, ConsumerGroup):
            return
        membership = group.membership
        counted: dict[tuple[bytes, int], str] = {}
        for member_id, member in membership.members.items():
            for partitions in (member.assigned, member.revoking):
                for topic, indexes in partitions.items():
                    for index in indexes:
                        assert counted.setdefault((topic, index), member_id) == member_id
        assert counted == membership.owners

    def teardown(self) -> None:
        """Once quiet, every partition that someone subscribes to has exactly one owner, also in the log."""
        if not hasattr(self, "world"):
            return
        self.failover()
        # Members that died lose their sessions, which begin again when the group changes its protocol; the others stay.
        for _ in range(32):
            self.world.clock.advance(SESSION_MS / 10_000)
            self._expire()
            self.all_heartbeats()
        for _ in range(20):
            self.world.clock.advance(0.1)
            self.all_heartbeats()
        self.no_partition_has_two_owners()
        everyone = [*self.clients, *self.classics]
        assert self.members() == {each.member_id for each in everyone}
        owned = [partition for each in everyone for partition in each.partitions]
        wanted = set()
        for name in "tu":
            if any(
                name in (client.topics or ()) or name in (client.regex or "") for client in self.clients
            ) or any(name in classic.topics for classic in self.classics):
                topic = self.topics.find(name)
                assert topic is not None
                wanted |= {(topic.topic_id, index) for index in range(topic.partitions)}
        assert len(owned) == len(wanted)
        assert set(owned) == wanted
        if self.clients:
            assert self.world.coordinator.describe_consumer_group("g").state == "Stable"
        elif self.classics:
            assert self.world.state() == "Stable"


Groups.TestCase.settings = settings(
    max_examples=examples(12),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestConsumerGroups = Groups.TestCase
