"""Random members of both protocols on virtual time: no partition has two owners, and in the end each has one."""

from __future__ import annotations

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.consumer_world import SESSION_MS, Client, ConsumerWorld, FakeTopics
from tests.support.depth import examples

from ottla_broker.coordinator.group.modern.consumer_group import ConsumerGroup
from ottla_protocol.errors import ErrorCode

SUBSCRIPTIONS = [("t",), ("t", "u"), ("u",)]
INSTANCES = [None, None, None, "one", "two"]
ALLOWED = (
    ErrorCode.NONE,
    ErrorCode.FENCED_MEMBER_EPOCH,
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.UNRELEASED_INSTANCE_ID,
)


class Groups(RuleBasedStateMachine):
    """Clients own what their last answer gave them, until they give it up, die, or their session ends."""

    @initialize(assignors=st.sampled_from([("uniform", "range"), ("range", "uniform")]))
    def begin(self, assignors: tuple[str, ...]) -> None:
        self.topics = FakeTopics(t=5, u=2)
        self.world = ConsumerWorld(self.topics, assignors=assignors)
        self.clients: list[Client] = []
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

    @rule()
    def all_heartbeats(self) -> None:
        for client in self.clients:
            self.beat(client)

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
        self._expire()

    def _expire(self) -> None:
        """Clients whose session is over have stopped: a real client notices that before the broker does."""
        members = self.members()
        for client in self.clients:
            if client.epoch > 0 and client.member_id not in members:
                client.epoch, client.owned = 0, {}

    @rule(name=st.sampled_from("tu"), more=st.integers(1, 4))
    def partitions_are_added(self, name: str, more: int) -> None:
        found = self.topics.find(name)
        self.topics.put(name, more if found is None else min(found.partitions + more, 12))

    @rule()
    def failover(self) -> None:
        before = self.members()
        self.world = self.world.failover()
        assert self.members() == before

    def members(self) -> set[str]:
        group = self.world.coordinator._groups.get("g")
        return set(group.membership.members) if isinstance(group, ConsumerGroup) else set()

    @invariant()
    def no_partition_has_two_owners(self) -> None:
        if not hasattr(self, "world"):
            return
        owners: dict[tuple[bytes, int], str] = {}
        for client in self.clients:
            for partition in client.partitions:
                assert owners.setdefault(partition, client.member_id) == client.member_id
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
        # Members that died lose their sessions; the others stay.
        for _ in range(12):
            self.world.clock.advance(SESSION_MS / 10_000)
            self._expire()
            for client in self.clients:
                self.beat(client)
        for _ in range(20):
            for client in self.clients:
                self.beat(client)
        self.no_partition_has_two_owners()
        assert self.members() == {client.member_id for client in self.clients}
        owned = [partition for client in self.clients for partition in client.partitions]
        wanted = set()
        for name in "tu":
            if any(name in (client.topics or ()) or name in (client.regex or "") for client in self.clients):
                topic = self.topics.find(name)
                assert topic is not None
                wanted |= {(topic.topic_id, index) for index in range(topic.partitions)}
        assert len(owned) == len(wanted)
        assert set(owned) == wanted
        if self.clients:
            assert self.world.coordinator.describe_consumer_group("g").state == "Stable"


Groups.TestCase.settings = settings(
    max_examples=examples(12),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestConsumerGroups = Groups.TestCase
