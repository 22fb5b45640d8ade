"""Classic groups become groups of the consumer protocol and back, while their members go on (KIP-848)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.coordinator.consumer_world import SESSION_MS, Client, ConsumerWorld, FakeTopics, settle
from tests.coordinator.harness import Waiting

from ottla_broker.coordinator.group.member import Sender
from ottla_broker.coordinator.group.modern.conversion import named_partitions
from ottla_broker.coordinator.group.modern.heartbeats import Heartbeat
from ottla_broker.coordinator.group.modern.membership import MOST_NAMES
from ottla_broker.coordinator.group.offsets import Committed
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    decode_assignment,
    encode_assignment,
    encode_subscription,
)

T = b"t".ljust(16, b"_")


class Classic:
    """A consumer of the classic protocol with cooperative rebalancing, as its client behaves."""

    def __init__(self, world: ConsumerWorld, instance: str | None = None) -> None:
        self.world = world
        self.instance = instance
        self.member_id = ""
        self.generation = -1
        self.owned: set[int] = set()
        self.joining: Waiting | None = None

    def options(self) -> dict[str, Any]:
        owned = [TopicPartition(topic="t", partitions=sorted(self.owned))] if self.owned else []
        subscription = ConsumerProtocolSubscription(topics=["t"], owned_partitions=owned)
        data = encode_subscription(subscription, 1)
        return {"protocols": (("cooperative-sticky", data), ("range", data)), "instance": self.instance}

    def join(self) -> Waiting:
        if not self.member_id and self.instance is None:
            self.member_id = self.world.member_id(**self.options())
        self.joining = self.world.join(self.member_id, **self.options())
        return self.joining

    def finish(self) -> None:
        """Take the answer of the join, and what SyncGroup gives."""
        assert self.joining is not None
        joined = self.joining.joined
        self.member_id, self.generation = joined.member_id, joined.generation_id
        sync = self.world.sync(self.member_id, self.generation, instance=self.instance)
        if sync.code is ErrorCode.NONE:
            self.owned = {
                index
                for part in decode_assignment(sync.answer.assignment).assigned_partitions
                for index in part.partitions
            }

    def step(self) -> None:
        """A heartbeat, and a rejoin if it asks for one."""
        code = self.world.heartbeat(self.member_id, self.generation, instance=self.instance)
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION):
            self.member_id, self.owned = "", set()
        if code is not ErrorCode.NONE:
            self.join()
            self.finish()


def classic_group(world: ConsumerWorld, count: int, instances: tuple[str | None, ...] = ()) -> list[Classic]:
    """A stable classic group whose members have read topic t, divided by its leader."""
    members = [Classic(world, instance) for instance in instances or (None,) * count]
    for member in members:
        member.join()
    world.clock.advance(0.1)
    divide(world, members)
    return members


def divide(world: ConsumerWorld, members: list[Classic]) -> None:
    """All join again and the leader assigns, as classic clients do it."""
    for member in members:
        if member.joining is not None and member.joining.done and member.joining.answer.error_code == 0:
            member.member_id = member.joining.answer.member_id
    joins = [(member, world.join(member.member_id, **member.options())) for member in members]
    if world.state() == "PreparingRebalance":
        world.clock.advance(0.1)
    topic = world.topics.find("t")
    assert topic is not None
    shares = {
        member.member_id: list(range(topic.partitions))[i :: len(members)] for i, member in enumerate(members)
    }
    encoded = {
        member_id: encode_assignment(
            ConsumerProtocolAssignment(assigned_partitions=[TopicPartition(topic="t", partitions=part)]), 1
        )
        for member_id, part in shares.items()
    }
    leader = joins[0][1].joined.leader
    for member, join in sorted(joins, key=lambda each: each[0].member_id == leader):
        member.generation = join.joined.generation_id
        mine = encoded if member.member_id == leader else None
        world.sync(member.member_id, member.generation, mine, instance=member.instance)
        member.owned = set(shares[member.member_id])
    assert world.state() == "Stable"


def run(classics: list[Classic], clients: list[Client], rounds: int = 12) -> None:
    for _ in range(rounds):
        for classic in classics:
            classic.step()
        for client in clients:
            client.heartbeat()
        owned = [(T, index) for classic in classics for index in classic.owned]
        owned += [partition for client in clients for partition in client.partitions]
        assert len(owned) == len(set(owned))


@pytest.fixture
def world() -> ConsumerWorld:
    return ConsumerWorld(FakeTopics(t=6))


def commit(world: ConsumerWorld) -> None:
    answers: list[int] = []
    group = world.coordinator._groups["g"]
    member_id = next(iter(group.members))  # type: ignore[union-attr]
    generation = group.generation  # type: ignore[union-attr]
    world.coordinator.commit(
        "g", Sender(member_id, None, generation), [("t", 0, Committed(7, -1, "", 0))], answers.extend
    )
    world.clock.run_due()
    assert answers == [0]


def offset(world: ConsumerWorld) -> int:
    return world.offset(topic="t")


def test_each_topic_keeps_its_partitions() -> None:
    """Those that it doesn't have are left out, whatever other topics have."""
    topics = FakeTopics(t=5, u=2)
    named = [TopicPartition(topic="t", partitions=[0, 4, 7]), TopicPartition(topic="u", partitions=[1, 2])]
    assert named_partitions(topics, named) == {T: {0, 4}, b"u".ljust(16, b"_"): {1}}


def test_a_group_is_upgraded_and_downgraded_while_its_members_go_on(world: ConsumerWorld) -> None:
    classics = classic_group(world, 2)
    commit(world)
    assert world.kind() == "classic"
    client = Client(world, "new")
    client.heartbeat()
    assert world.kind() == "consumer"
    assert offset(world) == 7
    run(classics, [client])
    assert sorted(map(len, [classics[0].owned, classics[1].owned, client.partitions])) == [2, 2, 2]
    described = world.coordinator.describe_consumer_group("g")
    assert described.state == "Stable"
    # A failover in between finds the same group.
    after = world.failover()
    for member in (*classics, client):
        member.world = after
    run(classics, [client], 2)
    assert after.coordinator.describe_consumer_group("g").state == "Stable"
    assert offset(after) == 7
    client.leave()
    assert after.kind() == "classic"
    assert offset(after) == 7
    assert after.failover().kind() == "classic"
    assert after.state() == "PreparingRebalance"
    assert after.heartbeat(classics[0].member_id, classics[0].generation) in (
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
    )
    # A coordinator that takes over before they join again knows that they have to.
    final = after.failover()
    assert final.state() == "PreparingRebalance"
    for member in classics:
        member.world = final
    divide(final, classics)
    assert sorted(map(len, [each.owned for each in classics])) == [3, 3]
    assert final.failover().state() == "Stable"


def test_a_rolling_bounce_ends_with_members_of_the_consumer_protocol_only(world: ConsumerWorld) -> None:
    classics = classic_group(world, 2)
    clients: list[Client] = []
    while classics:
        clients.append(Client(world, f"new{len(clients)}"))
        clients[-1].heartbeat()
        world.leave(classics.pop().member_id)
        run(classics, clients)
        assert sum(len(c.partitions) for c in clients) + sum(len(c.owned) for c in classics) == 6
    assert world.group().membership.classic_members == 0
    settle(clients)


def test_a_static_member_changes_its_protocol_in_place(world: ConsumerWorld) -> None:
    classics = classic_group(world, 2, ("one", "two"))
    client = Client(world, "new", instance="one")
    run(classics[1:], [client])
    assert len(client.partitions) == len(classics[1].owned) == 3
    back = Classic(world, "one")
    back.join()
    assert back.joining is not None
    assert back.joining.code is ErrorCode.NONE
    assert world.kind() == "classic"
    assert world.state() == "Stable"


def test_a_group_that_becomes_classic_amid_a_reassignment_rebalances(world: ConsumerWorld) -> None:
    classics = classic_group(world, 2, ("one", "two"))
    client = Client(world, "new", instance="one")
    run(classics[1:], [client])
    world.topics.put("t", 8)
    client.heartbeat()
    Classic(world, "one").join()
    assert world.kind() == "classic"
    assert world.state() == "PreparingRebalance"
    assert world.failover().state() == "PreparingRebalance"


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_a_policy_can_keep_a_group_classic(policy: str) -> None:
    world = ConsumerWorld(FakeTopics(t=6), migration_policy=policy)
    classic_group(world, 1)
    answer = Client(world, "new").heartbeat(expect=ErrorCode.GROUP_ID_NOT_FOUND)
    assert answer.error is not None
    assert "1 members of the classic protocol hold it" in (answer.error.message or "")
    assert policy in (answer.error.message or "")
    assert world.kind() == "classic"


def test_a_group_of_too_many_topics_stays_classic(world: ConsumerWorld) -> None:
    names = [f"a{number}" for number in range(MOST_NAMES + 1)]
    data = encode_subscription(ConsumerProtocolSubscription(topics=names), 1)
    world.stable(protocols=(("range", data),))
    answer = Client(world, "new").heartbeat(expect=ErrorCode.GROUP_ID_NOT_FOUND)
    assert answer.error is not None
    assert f"more than {MOST_NAMES} topics" in (answer.error.message or "")


@pytest.mark.parametrize(("topics", "owned"), [(MOST_NAMES + 1, 0), (1, 100_000)])
def test_a_classic_member_with_a_huge_subscription_is_refused(
    world: ConsumerWorld, topics: int, owned: int
) -> None:
    Client(world, "first").heartbeat()
    subscription = ConsumerProtocolSubscription(
        topics=["t"] * topics, owned_partitions=[TopicPartition(topic="t")] * owned
    )
    joining = world.join("", instance="one", protocols=(("range", encode_subscription(subscription, 1)),))
    assert joining.code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_a_policy_can_keep_a_group_upgraded() -> None:
    world = ConsumerWorld(FakeTopics(t=6), migration_policy="upgrade")
    classics = classic_group(world, 1)
    client = Client(world, "new")
    run(classics, [client])
    client.leave()
    run(classics, [])
    assert world.kind() == "consumer"
    assert len(classics[0].owned) == 6


def test_other_protocols_are_refused(world: ConsumerWorld) -> None:
    world.stable(protocol_type="connect")
    answer = Client(world, "new").heartbeat(expect=ErrorCode.GROUP_ID_NOT_FOUND)
    assert answer.error is not None
    assert "'connect'" in (answer.error.message or "")


def test_malformed_subscriptions_are_refused_both_ways(world: ConsumerWorld) -> None:
    world.stable(group="bad")
    client = Client(world, "new")
    answer = world.consumer_heartbeat(
        Heartbeat("a", 0, rebalance_timeout_ms=1, topics=["t"], owned={}), "bad"
    )
    assert answer.error is not None
    assert "malformed" in (answer.error.message or "")
    client.heartbeat()
    assert world.join("x").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join("x", protocol_type="connect").code is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_empty_groups_change_kind_and_keep_their_offsets(world: ConsumerWorld) -> None:
    (classic,) = classic_group(world, 1)
    commit(world)
    world.leave(classic.member_id)
    client = Client(world, "new")
    client.heartbeat()
    assert world.kind() == "consumer"
    assert offset(world) == 7
    client.leave()
    again = Classic(world)
    again.join()
    assert world.kind() == "classic"
    assert offset(world) == 7
    assert offset(world.failover()) == 7


def test_a_classic_member_in_an_upgraded_group_is_lost(world: ConsumerWorld) -> None:
    classics = classic_group(world, 2)
    client = Client(world, "new")
    run(classics, [client])
    for _ in range(8):
        world.clock.advance(SESSION_MS / 8000)
        classics[0].step()
        client.heartbeat()
    run(classics[:1], [client])
    assert len(classics[0].owned) == len(client.partitions) == 3


def test_a_classic_member_that_does_not_join_again_is_removed(world: ConsumerWorld) -> None:
    classics = classic_group(world, 1)
    client = Client(world, "new")
    client.heartbeat()
    for _ in range(14):
        world.heartbeat(classics[0].member_id, classics[0].generation)
        client.heartbeat()
        world.clock.advance(5)
    client.heartbeat()
    assert len(client.partitions) == 6


def test_waiting_requests_of_a_classic_group_are_answered(world: ConsumerWorld) -> None:
    first, second = classic_group(world, 2)
    waiting = world.join(first.member_id, **first.options())
    third = Classic(world)
    third.join()
    assert third.joining is not None
    client = Client(world, "new")
    client.heartbeat()
    assert waiting.done
    assert third.joining.done
    assert ErrorCode(third.joining.answer.error_code) is ErrorCode.REBALANCE_IN_PROGRESS
    run([first, second, third], [client])
    assert len(client.partitions) > 0
