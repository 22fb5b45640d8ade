"""The assignors: what they promise, for any group, and what Java's make of the same groups."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.client.group.cases import STRATEGIES, as_sets, assignor, solve
from tests.support.depth import examples

from ottla_client.errors import ConfigurationError
from ottla_client.group.assignors import (
    NO_GENERATION,
    Assignment,
    CooperativeStickyAssignor,
    RangeAssignor,
    RebalanceProtocol,
    StickyAssignor,
    Subscription,
    assignors_named,
    common_protocol,
)
from ottla_client.group.assignors.sticky import StickyUserData
from ottla_client.group.consumer_protocol import grouped
from ottla_client.types import TopicPartition

GOLDEN = Path(__file__).parent / "golden" / "assignments.jsonl"
"""Made with Java's assignors of Kafka 3.9.1: tests/interop/test_client_groups.py asks them again."""

TOPICS = st.dictionaries(st.sampled_from("abcd"), st.integers(0, 9), min_size=1)
MEMBERS = st.lists(st.sampled_from([f"m{number}" for number in range(6)]), min_size=1, unique=True)


@st.composite
def groups(draw: st.DrawFn, *, same: bool = False) -> tuple[dict[str, int], dict[str, Subscription]]:
    """Topics that exist, and members that subscribe to them and to some that don't."""
    topics = draw(TOPICS)
    names = st.lists(st.sampled_from("abcde"), unique=True)
    everyone = draw(names)
    members = {
        member: Subscription(
            everyone if same else draw(names), instance_id=draw(st.sampled_from([None, f"i-{member}"]))
        )
        for member in draw(MEMBERS)
    }
    return topics, members


def flat(assignment: Assignment) -> list[TopicPartition]:
    return [partition for partitions in assignment.values() for partition in partitions]


def wanted(topics: Mapping[str, int], members: Mapping[str, Subscription]) -> list[TopicPartition]:
    """All existing partitions that members subscribe to."""
    names = {topic for subscription in members.values() for topic in subscription.topics}
    return [TopicPartition(topic, n) for topic in names & topics.keys() for n in range(topics[topic])]


def check_whole(
    assignment: Assignment, topics: Mapping[str, int], members: Mapping[str, Subscription]
) -> None:
    """Every partition once, each to a member that reads its topic, and every member in it."""
    assert assignment.keys() == members.keys()
    assert Counter(flat(assignment)) == Counter(wanted(topics, members))
    for member, partitions in assignment.items():
        assert {partition.topic for partition in partitions} <= set(members[member].topics)


def rejoined(
    strategy: str, subscriptions: Mapping[str, Subscription], had: Assignment, generation: int
) -> dict[str, Subscription]:
    """The members as they come to the next rebalance, having ``had`` this since ``generation``."""
    members = {}
    for member, subscription in subscriptions.items():
        mine = assignor(strategy)
        owned: tuple[TopicPartition, ...] = ()
        if member in had:
            mine.on_assignment(had[member], generation)
            owned = tuple(had[member]) if strategy == "cooperative-sticky" else ()
        members[member] = Subscription(
            subscription.topics,
            mine.user_data(subscription.topics),
            owned,
            generation if member in had else NO_GENERATION,
            instance_id=subscription.instance_id,
        )
    return members


@settings(deadline=None)
@given(groups(), st.sampled_from(STRATEGIES))
def test_every_partition_goes_to_one_member_that_reads_it(
    group: tuple[dict[str, int], dict[str, Subscription]], strategy: str
) -> None:
    topics, members = group
    check_whole(assignor(strategy).assign(topics, members), topics, members)


@settings(deadline=None)
@given(groups(same=True), st.sampled_from(["roundrobin", "sticky", "cooperative-sticky"]))
def test_members_that_read_the_same_get_the_same_number_but_one(
    group: tuple[dict[str, int], dict[str, Subscription]], strategy: str
) -> None:
    sizes = [len(partitions) for partitions in assignor(strategy).assign(*group).values()]
    assert max(sizes) - min(sizes) <= 1


@settings(deadline=None)
@given(groups())
def test_range_gives_runs_and_nobody_two_more_of_a_topic(
    group: tuple[dict[str, int], dict[str, Subscription]],
) -> None:
    topics, members = group
    assignment = RangeAssignor().assign(topics, members)
    for topic in topics:
        readers = [member for member, subscription in members.items() if topic in subscription.topics]
        runs = [[one.partition for one in assignment[member] if one.topic == topic] for member in readers]
        assert all(run == list(range(run[0], run[0] + len(run))) for run in runs if run)
        assert not runs or max(map(len, runs)) - min(map(len, runs)) <= 1


@settings(deadline=None)
@given(groups(), st.sampled_from(["sticky", "cooperative-sticky"]))
def test_nobody_can_get_a_partition_from_one_that_has_two_more(
    group: tuple[dict[str, int], dict[str, Subscription]], strategy: str
) -> None:
    topics, members = group
    assignment = assignor(strategy).assign(topics, members)
    for member, subscription in members.items():
        for other, partitions in assignment.items():
            if any(partition.topic in subscription.topics for partition in partitions):
                assert len(assignment[other]) <= len(assignment[member]) + 1


@settings(deadline=None)
@given(groups(), st.sampled_from(["sticky", "cooperative-sticky"]))
def test_nothing_moves_where_nothing_has_changed(
    group: tuple[dict[str, int], dict[str, Subscription]], strategy: str
) -> None:
    topics, members = group
    first = assignor(strategy).assign(topics, members)
    again = assignor(strategy).assign(topics, rejoined(strategy, members, first, 1))
    assert as_sets(again) == as_sets(first)


@settings(deadline=None)
@given(groups(same=True), st.data())
def test_who_stays_keeps_all_that_its_share_has_room_for(
    group: tuple[dict[str, int], dict[str, Subscription]], data: st.DataObject
) -> None:
    topics, members = group
    first = StickyAssignor().assign(topics, members)
    staying = data.draw(st.lists(st.sampled_from(sorted(members)), min_size=1, unique=True))
    some = next(iter(members.values()))
    new = {f"n{number}": Subscription(some.topics) for number in range(data.draw(st.integers(0, 3)))}
    now = {member: members[member] for member in staying} | new
    had = {member: first[member] for member in staying}
    second = StickyAssignor().assign(topics, rejoined("sticky", now, had, 1))
    check_whole(second, topics, now)
    least = len(flat(second)) // len(now)
    for member in staying:
        kept = set(first[member]) & set(second[member])
        assert len(kept) >= min(len(first[member]), least)


@settings(max_examples=examples(70), deadline=None)
@given(groups(), groups())
def test_cooperative_members_never_get_what_another_still_has(
    before: tuple[dict[str, int], dict[str, Subscription]],
    after: tuple[dict[str, int], dict[str, Subscription]],
) -> None:
    strategy = "cooperative-sticky"
    had = assignor(strategy).assign(*before)
    topics, subscriptions = after
    generation = 1
    # Rebalances follow each other until no member has to give up partitions; two are enough.
    for _ in range(2):
        had = {member: partitions for member, partitions in had.items() if member in subscriptions}
        members = rejoined(strategy, subscriptions, had, generation)
        assignment = CooperativeStickyAssignor().assign(topics, members)
        for member, partitions in assignment.items():
            others = {one for other, each in had.items() if other != member for one in each}
            assert not set(partitions) & others
        given_up = any(set(had[member]) - set(assignment[member]) for member in had)
        had = assignment
        generation += 1
        if not given_up:
            break
    members = rejoined(strategy, subscriptions, had, generation)
    check_whole(CooperativeStickyAssignor().assign(topics, members), topics, members)


@pytest.mark.parametrize("strategy", ["sticky", "cooperative-sticky"])
def test_of_two_claims_the_newer_generation_holds(strategy: str) -> None:
    topics = {"a": 4}
    everything = [TopicPartition("a", number) for number in range(4)]
    subscription = Subscription(["a"])
    stale = rejoined(strategy, {"cut-off": subscription}, {"cut-off": everything}, 3)
    there = rejoined(strategy, {"there": subscription}, {"there": everything[:2]}, 5)
    assignment = assignor(strategy).assign(topics, stale | there)
    assert sorted(assignment["there"]) == everything[:2]
    assert sorted(assignment["cut-off"]) == everything[2:]


def test_what_two_claim_in_one_generation_is_withheld_until_both_have_given_it_up() -> None:
    had = {"one": [TopicPartition("a", 0)], "two": [TopicPartition("a", 0), TopicPartition("a", 1)]}
    subscriptions = {member: Subscription(["a"]) for member in had}
    strategy = "cooperative-sticky"
    assignment = assignor(strategy).assign({"a": 2}, rejoined(strategy, subscriptions, had, 3))
    assert assignment == {"one": [], "two": [TopicPartition("a", 1)]}
    assignment = assignor(strategy).assign({"a": 2}, rejoined(strategy, subscriptions, assignment, 4))
    assert assignment == {"one": [TopicPartition("a", 0)], "two": [TopicPartition("a", 1)]}


def test_claims_of_partitions_that_do_not_exist_are_ignored() -> None:
    had = {"one": [TopicPartition("a", 7), TopicPartition("gone", 0)]}
    for strategy in ("sticky", "cooperative-sticky"):
        members = rejoined(strategy, {"one": Subscription(["a"]), "two": Subscription(["a"])}, had, 3)
        check_whole(assignor(strategy).assign({"a": 3}, members), {"a": 3}, members)


def test_sticky_reads_user_data_of_clients_that_leave_the_generation_out() -> None:
    had = [TopicPartition("a", 0), TopicPartition("a", 1)]
    data = StickyUserData(previous_assignment=grouped(had)).encode(0)
    members = {"new": Subscription(["a"]), "old": Subscription(["a"], data)}
    assignment = StickyAssignor().assign({"a": 4}, members)
    assert sorted(assignment["old"]) == had


@settings(deadline=None)
@given(st.binary())
def test_any_user_data_is_survived(data: bytes) -> None:
    for strategy in ("sticky", "cooperative-sticky"):
        members = {"one": Subscription(["a"], data), "two": Subscription(["a"])}
        check_whole(assignor(strategy).assign({"a": 3}, members), {"a": 3}, members)


@pytest.mark.parametrize(
    "line", GOLDEN.read_text().splitlines(), ids=lambda line: json.loads(line)["case"]["strategy"]
)
def test_java_divides_the_same_group_alike(line: str) -> None:
    golden: dict[str, Any] = json.loads(line)
    answer = solve(golden["case"])
    assert as_sets(answer["assignment"]) == as_sets(golden["answer"]["assignment"])
    for member, data in golden["answer"]["user_data"].items():
        if golden["case"]["strategy"] != "sticky":
            assert answer["user_data"][member] == data
        else:
            # Java's order of topics is that of a hash map.
            assert _sorted(answer["user_data"][member]) == _sorted(data)


def _sorted(data: str) -> tuple[int, list[tuple[str, list[int]]]]:
    read = StickyUserData.decode(bytes.fromhex(data), 1)
    assert read.encode(1).hex() == data
    return read.generation, sorted((each.topic, sorted(each.partitions)) for each in read.previous_assignment)


def test_the_protocol_is_the_newest_that_all_assignors_know() -> None:
    def protocol(*names: str) -> RebalanceProtocol:
        return common_protocol(assignors_named(names))

    assert protocol("range", "cooperative-sticky") is RebalanceProtocol.EAGER
    assert protocol("cooperative-sticky") is RebalanceProtocol.COOPERATIVE
    assert protocol("sticky", "roundrobin") is RebalanceProtocol.EAGER
    only = CooperativeStickyAssignor()
    only.protocols = frozenset({RebalanceProtocol.COOPERATIVE})  # type: ignore[misc]
    with pytest.raises(ConfigurationError, match="range, cooperative-sticky"):
        common_protocol([RangeAssignor(), only])


@pytest.mark.parametrize(
    ("names", "text"), [([], "at least one"), (["Range"], "roundrobin"), (["range"] * 2, "twice")]
)
def test_wrong_names_are_refused(names: list[str], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        assignors_named(names)
