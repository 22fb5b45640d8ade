"""Random members of a share group on virtual time: each reads what it subscribes to, and no partition is left out."""

from __future__ import annotations

import io
import random
from collections import Counter
from collections.abc import Callable
from functools import partial

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule
from tests.coordinator.consumer_world import FakeTopics
from tests.coordinator.harness import FakePartition, Waiting, usual_times
from tests.support.clock import FakeClock
from tests.support.depth import examples

from ottla_broker import events
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.membership import JoinRequest
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat, HeartbeatAnswer
from ottla_broker.coordinator.group.modern.settings import GroupTimes
from ottla_broker.coordinator.group.settings import GroupSettings
from ottla_broker.coordinator.group.share.groups import ShareGroups, ShareHeartbeat
from ottla_broker.coordinator.share.state_batches import ShareKey
from ottla_broker.coordinator.share.state_coordinator import Settled
from ottla_broker.metadata.internal_topics import OFFSETS_TOPIC
from ottla_protocol.errors import ErrorCode, KafkaError

SESSION_MS = 45_000
SUBSCRIPTIONS = [("t",), ("t", "u"), ("u",)]
BEGIN_AGAIN = (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.GROUP_ID_NOT_FOUND)
TRY_AGAIN = (ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR)


class Keeper:
    """The share coordinator, which may refuse or be slow."""

    def __init__(self) -> None:
        self.made: set[ShareKey] = set()
        self.mode = "serves"
        self._held: list[Callable[[], None]] = []

    def initialize(self, key: ShareKey, epoch: int, start: int, settled: Settled) -> None:
        if self.mode == "holds":
            self._held.append(partial(self._serve, key, settled))
        elif self.mode == "refuses":
            settled(KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE))
        else:
            self._serve(key, settled)

    def _serve(self, key: ShareKey, settled: Settled) -> None:
        self.made.add(key)
        settled(None)

    def delete(self, key: ShareKey, settled: Settled) -> None:
        raise AssertionError("no group is deleted here")

    def become(self, mode: str) -> None:
        self.mode = mode
        held, self._held = self._held, []
        for each in held if mode != "holds" else ():
            each()


class Broker:
    """The coordinator of group ``g``."""

    def __init__(self, topics: FakeTopics, keeper: Keeper, before: Broker | None = None) -> None:
        self.clock = FakeClock()
        self.partition = FakePartition()
        self.partition.clock = self.clock
        if before is not None:
            self.clock.time = before.clock.time
            self.partition.batches = list(before.partition.batches)
            self.partition.end_offset = before.partition.end_offset
        times = GroupTimes(SESSION_MS, 5_000)
        # Members that have crashed stay for their session.
        self.shares = ShareGroups(keeper, lambda _: times, topics, lambda: 100, self.clock)
        self.coordinator = GroupCoordinator(
            GroupSettings(), self.clock, random.Random(0), lambda: 1, topics, usual_times, self.shares
        )
        self.coordinator.start()
        self.coordinator.on_leader(self.partition)
        self.clock.run_due()

    def stop(self) -> None:
        self.coordinator.on_stop(OFFSETS_TOPIC, 0)
        self.partition.release(ErrorCode.NOT_LEADER_OR_FOLLOWER)

    def known(self) -> object:
        """What the log has to say about the group."""
        group = self.shares.groups.get("g")
        if group is None:
            return None
        members = {
            each.member_id: (each.epoch, each.topics, each.assigned) for each in group.members.values()
        }
        target = {member: partitions for member, partitions in group.target.items() if partitions}
        return group.epoch, group.assignment_epoch, group.topics_hash, members, target, group.initialized


class Member:
    """A member as its client keeps it."""

    def __init__(self, name: str, topics: tuple[str, ...]) -> None:
        self.name = name
        self.topics = topics
        self.epoch = 0
        self.assigned: dict[bytes, frozenset[int]] = {}
        self.answers: list[HeartbeatAnswer] | None = None
        self._stated: tuple[str, ...] | None = None

    def beat(self, broker: Broker) -> None:
        """Send a heartbeat, unless one has no answer yet."""
        if self.answers is None:
            topics = None if self.epoch and self.topics == self._stated else self.topics
            self._stated = self.topics
            self.answers = []
            request = ShareHeartbeat(self.name, self.epoch, topics=topics)
            broker.coordinator.share_heartbeat("g", request, self.answers.append)
        self.hear()

    def hear(self) -> None:
        if not self.answers:
            return
        (answer,), self.answers = self.answers, None
        if answer.error is None:
            self.epoch = answer.epoch
            if answer.assignment is not None:
                self.assigned = dict(answer.assignment)
        else:
            self._stated = None
            assert answer.error.code in BEGIN_AGAIN + TRY_AGAIN, answer.error
            if answer.error.code in BEGIN_AGAIN:
                self.epoch, self.assigned = 0, {}


class Groups(RuleBasedStateMachine):
    @initialize()
    def begin(self) -> None:
        self.topics = FakeTopics(t=3)
        self.sizes = {"t": 3}
        self.keeper = Keeper()
        self.broker = Broker(self.topics, self.keeper)
        self.members: list[Member] = []
        self.names = 0

    @precondition(lambda self: len(self.members) < 6)
    @rule(topics=st.sampled_from(SUBSCRIPTIONS))
    def join(self, topics: tuple[str, ...]) -> None:
        self.names += 1
        self.members.append(Member(f"m{self.names}", topics))
        self.members[-1].beat(self.broker)

    @precondition(lambda self: self.members)
    @rule(data=st.data())
    def one_heartbeat(self, data: st.DataObject) -> None:
        data.draw(st.sampled_from(self.members)).beat(self.broker)

    @rule()
    def all_heartbeats(self) -> None:
        for member in self.members:
            member.beat(self.broker)

    @precondition(lambda self: self.members)
    @rule(data=st.data(), topics=st.sampled_from(SUBSCRIPTIONS))
    def subscribe(self, data: st.DataObject, topics: tuple[str, ...]) -> None:
        data.draw(st.sampled_from(self.members)).topics = topics

    @precondition(lambda self: self.members)
    @rule(data=st.data(), crashes=st.booleans())
    def leave(self, data: st.DataObject, crashes: bool) -> None:
        member = data.draw(st.sampled_from(self.members))
        self.members.remove(member)
        if not crashes:
            request = ShareHeartbeat(member.name, -1)
            self.broker.coordinator.share_heartbeat("g", request, lambda _: None)

    @rule(seconds=st.sampled_from([1, 20, 46]))
    def time_passes(self, seconds: int) -> None:
        self.broker.clock.advance(seconds)
        self.hear()

    @rule(name=st.sampled_from("tu"), more=st.integers(1, 3))
    def partitions_are_added(self, name: str, more: int) -> None:
        self.sizes[name] = min(8, self.sizes.get(name, 0) + more)
        self.topics.put(name, self.sizes[name])

    @rule(mode=st.sampled_from(["serves", "serves", "refuses", "holds"]))
    def share_coordinator(self, mode: str) -> None:
        self.keeper.become(mode)
        self.hear()

    @rule(refuse=st.sampled_from([None, None, ErrorCode.NOT_ENOUGH_REPLICAS]), hold=st.booleans())
    def log(self, refuse: ErrorCode | None, hold: bool) -> None:
        partition = self.broker.partition
        partition.refuse, partition.hold = refuse, hold
        if not hold:
            partition.release()
        self.hear()

    @rule()
    def failover(self) -> None:
        before = self.broker.known()
        self.broker.stop()
        self.hear()
        self.broker = Broker(self.topics, self.keeper, self.broker)
        for member in self.members:
            member.answers = None  # lost with the connection
        assert self.broker.known() == before

    def hear(self) -> None:
        self.broker.clock.run_due()
        for member in self.members:
            member.hear()

    @invariant()
    def members_get_what_exists_and_has_state(self) -> None:
        if not hasattr(self, "broker"):
            return
        for member in self.members:
            for topic_id, indexes in member.assigned.items():
                for index in indexes:
                    assert ShareKey("g", topic_id, index) in self.keeper.made

    def teardown(self) -> None:
        """Once quiet, every partition that someone subscribes to has a reader, and every subscriber a partition."""
        if not hasattr(self, "broker"):
            return
        self.keeper.become("serves")
        self.log(None, False)
        self.failover()
        for _ in range(15):
            # Members that died lose their sessions; the others stay.
            self.broker.clock.advance(SESSION_MS / 10_000)
            self.all_heartbeats()
        for _ in range(3):
            self.all_heartbeats()
        group = self.broker.shares.groups.get("g")
        assert set(group.members if group else ()) == {member.name for member in self.members}
        for name, size in self.sizes.items():
            self._check_shares(name, size)

    def _check_shares(self, name: str, size: int) -> None:
        topic = self.topics.find(name)
        assert topic is not None
        parts = {member.name: member.assigned.get(topic.topic_id, frozenset()) for member in self.members}
        subscribers = {member.name for member in self.members if name in member.topics}
        assert {member for member, indexes in parts.items() if indexes} == subscribers
        if not subscribers:
            return
        readers = Counter(index for indexes in parts.values() for index in indexes)
        assert readers.keys() == set(range(size))
        if len(subscribers) < size:
            assert set(readers.values()) == {1}
        sizes = [len(parts[member]) for member in subscribers]
        assert max(sizes) - min(sizes) <= 1
        assert max(readers.values()) - min(readers.values()) <= 1


Groups.TestCase.settings = settings(
    max_examples=examples(15),
    stateful_step_count=30,
    deadline=None,
    suppress_health_check=list(HealthCheck),
)
TestShareGroups = Groups.TestCase


def test_a_group_of_another_type_is_refused_and_the_answer_says_of_which() -> None:
    log = io.StringIO()
    events.configure(stream=log)
    broker = Broker(FakeTopics(t=2), Keeper())
    member = Member("m1", ("t",))
    member.beat(broker)
    assert member.epoch > 0

    def enter(group: str) -> str:
        answers: list[HeartbeatAnswer] = []
        request = Heartbeat("m", 0, rebalance_timeout_ms=1000, topics=["t"], owned={})
        broker.coordinator.consumer_heartbeat(group, request, answers.append)
        return _message(answers[0].error)

    assert "g is not a consumer group: it is held by 1 members of the share protocol" in enter("g")
    assert "1 members of the share protocol" in log.getvalue()
    joined = Waiting()
    broker.coordinator.join(
        "g",
        JoinRequest(
            member_id="",
            instance_id=None,
            client_id="old",
            client_host="/127.0.0.1",
            session_timeout_ms=10_000,
            rebalance_timeout_ms=10_000,
            protocol_type="consumer",
            protocols=(("range", b""),),
            needs_known_id=True,
            can_skip_assignment=True,
            reason="",
        ),
        joined,
    )
    assert joined.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert log.getvalue().count("a member was refused") == 2
    broker.coordinator.share_heartbeat("g", ShareHeartbeat("m1", -1), lambda _: None)
    assert "held by the share protocol, though it has no members" in enter("g")
    assert enter("h") == ""
    answers: list[HeartbeatAnswer] = []
    broker.coordinator.share_heartbeat("h", ShareHeartbeat("m2", 0, topics=["t"]), answers.append)
    assert "h is not a share group: it is held by 1 members of the consumer protocol" in _message(
        answers[0].error
    )


def _message(error: KafkaError | None) -> str:
    return "" if error is None else error.message or error.code.name
