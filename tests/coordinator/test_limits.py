"""What clients may have a coordinator remember."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count

import pytest
from tests.coordinator.consumer_world import Client, ConsumerWorld, FakeTopics, settle
from tests.coordinator.harness import DELAY_MS, World
from tests.coordinator.transactions import TransactionWorld

from ottla_broker.coordinator.deadlines import Deadline, Deadlines
from ottla_broker.coordinator.group.coordinator import GroupCoordinator
from ottla_broker.coordinator.group.modern import heartbeats, patterns, rebalance
from ottla_protocol.errors import ErrorCode as Code
from ottla_protocol.errors import KafkaError
from ottla_protocol.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
    TopicPartition,
    encode_assignment,
    encode_subscription,
)


def test_a_group_too_many_is_refused_and_those_that_exist_are_served() -> None:
    world = World(max_groups=2)
    world.stable(group="a")
    assert world.commit(group="b") == [Code.NONE]
    assert world.join(group="c").code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="c", version=3).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.commit(group="c") == [Code.GROUP_MAX_SIZE_REACHED]
    assert world.commit_transactional((7, 0), group="c") == [Code.GROUP_MAX_SIZE_REACHED]
    assert world.commit(43, group="b") == [Code.NONE]
    assert world.join("unknown", group="c").code is Code.UNKNOWN_MEMBER_ID
    assert world.join(group="a").code is Code.MEMBER_ID_REQUIRED


def test_the_oldest_of_too_many_unused_member_ids_is_dropped() -> None:
    world = World(max_pending_members=3)
    used = world.member_id()
    joining = world.join(used)
    ids = [world.member_id(group=f"g{number}") for number in range(4)]
    world.clock.advance(DELAY_MS / 1000)
    assert joining.joined.member_id == used
    assert world.join(ids[0], group="g0").code is Code.UNKNOWN_MEMBER_ID
    for number in (1, 2, 3):
        assert not world.join(ids[number], group=f"g{number}").done


def test_metadata_of_all_members_is_limited() -> None:
    large = (("range", bytes(40_000)),)
    world = World(max_metadata_bytes=100_000)
    [first], _ = world.stable(group="a", protocols=large)
    [second], generation = world.stable(group="b", protocols=large)
    assert world.join(group="c", protocols=large).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="b", protocols=large).code is Code.GROUP_MAX_SIZE_REACHED
    # Those with little, and those that are there, go on.
    assert world.join(group="c").code is Code.MEMBER_ID_REQUIRED
    assert world.join(second, group="b", protocols=large).joined.generation_id == generation + 1
    world.leave(first, group="a")
    assert world.join(group="c", protocols=large).code is Code.MEMBER_ID_REQUIRED


def test_small_members_have_room_of_their_own_that_ends_as_well() -> None:
    world = World(max_metadata_bytes=40_000)
    world.stable(group="a", protocols=(("range", bytes(18_000)),), session_ms=600_000)
    small = (("range", bytes(12_000)),)
    for group in "bcde":
        world.stable(group=group, protocols=small, session_ms=600_000)
    assert world.join(group="f", protocols=small, version=3).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="f", version=3).answer is None


def test_a_group_has_half_of_the_room() -> None:
    world = World(max_metadata_bytes=100_000)
    large = (("range", bytes(40_000)),)
    world.stable(group="a", protocols=large)
    assert world.join(group="a", protocols=large).code is Code.GROUP_MAX_SIZE_REACHED
    assert world.join(group="b", protocols=large).code is Code.MEMBER_ID_REQUIRED


def test_what_members_of_the_consumer_protocol_state_is_limited() -> None:
    world = ConsumerWorld(FakeTopics(t=2), max_metadata_bytes=100_000)
    many = tuple(f"{number:0200}" for number in range(100))
    first, second = Client(world, "a", topics=("t", *many)), Client(world, "b", topics=("t",))
    first.heartbeat()
    second.heartbeat()
    assert _counted(world.coordinator)
    second.topics = many
    refused = second.heartbeat(expect=Code.GROUP_MAX_SIZE_REACHED)
    assert refused.error is not None
    assert "max.group.metadata.bytes" in str(refused.error)
    Client(world, "c", topics=many).heartbeat(expect=Code.GROUP_MAX_SIZE_REACHED)
    # Those with little, and those that are there, go on.
    second.topics = ("t",)
    second.heartbeat()
    first.heartbeat()
    Client(world, "d").heartbeat()
    first.leave()
    second.topics = many
    second.heartbeat()
    assert _counted(world.coordinator)
    after = world.failover()
    assert _counted(after.coordinator) == _counted(world.coordinator)


def test_the_sum_of_what_is_stated_follows_groups_that_change_their_protocol() -> None:
    world = ConsumerWorld(FakeTopics(t=2))
    subscription = ConsumerProtocolSubscription(topics=["t"], user_data=bytes(3000))
    join = world.new(protocols=(("range", encode_subscription(subscription, 1)),))
    world.clock.advance(DELAY_MS / 1000)
    member = join.joined.member_id
    everything = ConsumerProtocolAssignment(
        assigned_partitions=[TopicPartition(topic="t", partitions=[0, 1])]
    )
    world.sync(member, join.joined.generation_id, {member: encode_assignment(everything, 1)})
    world.clock.run_due()
    classic = _counted(world.coordinator)
    modern = Client(world, "modern")
    modern.heartbeat()
    assert world.kind() == "consumer"
    assert _counted(world.coordinator) > classic
    modern.leave()
    assert world.kind() == "classic"
    assert _counted(world.coordinator) == classic
    world.leave(member)
    world.coordinator.delete(["g"], lambda _: None)
    assert world.coordinator.admission.metadata_limit.used == 0


def test_offsets_of_open_transactions_have_the_room_of_members() -> None:
    world = World(max_metadata_bytes=100_000)
    large, ten, refused = "x" * 4000, tuple(range(10)), [Code.GROUP_MAX_SIZE_REACHED]
    p, q, r = (7, 0), (8, 0), (9, 0)

    def commit(producer: tuple[int, int], group: str) -> list[Code]:
        return world.commit_transactional(producer, group=group, partitions=ten, metadata=large)

    assert commit(p, "a") == [Code.NONE] * 10
    assert commit(q, "a") == refused * 10  # it would have more than half
    assert commit(q, "b") == [Code.NONE] * 10
    assert commit(r, "c") == refused * 10
    # Those with little, and those that are there, go on.
    assert world.commit_transactional(r, group="c") == [Code.NONE]
    assert commit(p, "a") == [Code.NONE] * 10
    counted = _counted(world.coordinator)
    assert counted > 2 * 10 * 4000
    world = world.restart(max_metadata_bytes=100_000)
    assert _counted(world.coordinator) == counted
    assert commit(r, "c") == refused * 10
    world.coordinator.delete_offsets("a", [("t", 0)], lambda *_: None)
    assert _counted(world.coordinator) == counted  # it has no offset that counts
    world.end_transaction(p, False)
    assert commit(r, "c") == [Code.NONE] * 10
    world.end_transaction(q, True)
    world.coordinator.on_partitions_deleted("t", ten)
    world.clock.advance(1)
    assert _counted(world.coordinator) == len("ac")  # groups without offsets, until they expire


def test_a_group_has_few_regular_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(heartbeats, "MOST_REGEXES", 2)
    world = ConsumerWorld(FakeTopics(t=1, u=1))
    for name in ("a", "b"):
        Client(world, name, topics=None, regex=f"t|{name}").heartbeat()
    third = Client(world, "c", topics=None, regex="u")
    third.heartbeat(expect=Code.GROUP_MAX_SIZE_REACHED)
    third.regex = "t|a"
    third.heartbeat()


def test_very_many_regular_expressions_are_matched_by_several_heartbeats(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(rebalance, "_MOST_MATCHES", 4)
    topics = FakeTopics(t=1, u=1)
    world = ConsumerWorld(topics)
    clients = [Client(world, name, topics=None, regex=f"[tuv]|{name}") for name in "abcdef"]
    settle(clients)
    assert {topic for client in clients for topic, _ in client.partitions} == {
        topics.find(name).topic_id for name in "tu"
    }
    new = topics.put("v", 1)
    clients[0].heartbeat()
    matched = [each for each in world.group().membership.regexes.values() if "v" in each.topics]
    assert len(matched) < len(clients)
    settle(clients)
    assert all("v" in each.topics for each in world.group().membership.regexes.values())
    assert world.group().metadata_version == topics.version
    assert {new} <= {topic for client in clients for topic, _ in client.partitions}


def test_a_slow_expression_is_matched_by_several_heartbeats() -> None:
    now = count()
    matcher = patterns.Matcher(lambda: next(now) * 0.004)
    names = [f"t{number}" for number in range(100)]

    def answers(version: int) -> Iterator[tuple[str, ...] | None]:
        found = None
        while found is None:
            matcher.begin_request()
            found = matcher.resolve("t.*5", version, names)
            yield found

    *unfinished, found = answers(1)
    assert found == tuple(sorted(name for name in names if name.endswith("5")))
    assert len(unfinished) > 3
    assert not matcher._begun
    # Topics that have changed meanwhile are looked at from the first.
    matcher.begin_request()
    assert matcher.resolve("t.*5", 2, names) is None
    names[:] = names[50:]
    *_, found = answers(3)
    assert found == tuple(f"t{number}" for number in range(55, 100, 10))


def test_few_compiled_expressions_are_kept() -> None:
    import re2

    used = patterns.compile_pattern("used.*")
    for number in range(3 * patterns.MAX_CACHED):
        assert patterns.compile_pattern(f"({number})x*")(f"{number}xx")
        assert patterns.compile_pattern("used.*") is used
    assert len(patterns._cache) == patterns.MAX_CACHED
    assert re2._Regexp._make.cache_info().currsize == 0


def test_an_expression_of_very_many_unicode_classes_is_refused() -> None:
    """It took 91 ms and 42 MiB to find out that its automaton is too large."""
    assert patterns.compile_pattern(r"\p{Lu}.*")("A")
    with pytest.raises(KafkaError, match="it has 1365 classes of Unicode, and at most 100 are allowed"):
        patterns.compile_pattern(r"\pL" * 1365)


def _counted(coordinator: GroupCoordinator) -> int:
    """What all groups have stated: what the sum says is what they say."""
    stated = sum(each.stated.bytes for each in coordinator._groups.values())
    assert coordinator.admission.metadata_limit.used == stated
    return stated


def test_a_transactional_id_too_many_is_refused() -> None:
    world = TransactionWorld(max_ids=2)
    first = world.producer("a")
    world.producer("b")
    [refused] = world.init("c")
    assert refused.error == Code.POLICY_VIOLATION
    again = world.producer("a")
    assert (again.id, again.epoch) == (first.id, first.epoch + 1)


def test_a_long_transactional_id_counts_as_several() -> None:
    world = TransactionWorld(max_ids=4)
    world.producer("a")
    [refused] = world.init("x" * 1024)
    assert refused.error == Code.POLICY_VIOLATION
    world.producer("y" * 400)


def test_deadlines_that_are_removed_leave_nothing_behind() -> None:
    world = World()
    missed: list[Deadline] = []
    deadlines = Deadlines(world.clock, missed.append)
    kept = Deadline()
    deadlines.set(kept, 1800)
    for _ in range(20_000):
        gone = Deadline()
        deadlines.set(gone, 1800)
        deadlines.clear(gone)
    assert len(deadlines) < 3_000
    again = Deadline()
    deadlines.set(again, 1800)
    deadlines.clear(again)
    deadlines.set(again, 1800)
    world.clock.advance(1800)
    assert missed == [kept, again]
