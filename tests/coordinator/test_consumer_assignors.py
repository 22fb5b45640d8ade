"""The server-side assignors against Kafka's rules: balanced, sticky, every partition once; ranges in order."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.support.depth import examples

from ottla_broker.coordinator.group.modern.assignors import assignor_names, by_range, uniform
from ottla_broker.coordinator.group.modern.member import Partitions
from ottla_broker.coordinator.group.modern.specs import MemberSpec, TopicSpec

IDS = [bytes([number]) * 16 for number in range(1, 5)]
TOPICS = st.dictionaries(st.sampled_from(IDS), st.integers(1, 12), min_size=1)


def sizes(target: dict[str, Partitions]) -> dict[str, int]:
    return {member: sum(map(len, parts.values())) for member, parts in target.items()}


def flat(partitions: Partitions) -> set[tuple[bytes, int]]:
    return {(topic, index) for topic, indexes in partitions.items() for index in indexes}


def check_covers(
    target: dict[str, Partitions], members: dict[str, MemberSpec], counts: dict[bytes, int]
) -> None:
    seen: set[tuple[bytes, int]] = set()
    for member, parts in target.items():
        assert set(parts) <= members[member].topics
        mine = flat(parts)
        assert not seen & mine
        seen |= mine
    wanted = {topic for spec in members.values() for topic in spec.topics}
    assert seen == {(topic, index) for topic in wanted for index in range(counts[topic])}


def specs(subscriptions: dict[str, frozenset[bytes]], before: dict[str, Partitions]) -> dict[str, MemberSpec]:
    return {member: MemberSpec(topics, before.get(member, {})) for member, topics in subscriptions.items()}


@settings(max_examples=examples(30), deadline=None)
@given(counts=TOPICS, steps=st.lists(st.integers(1, 7), min_size=1, max_size=4), more=st.integers(0, 5))
def test_uniform_is_balanced_and_moves_no_more_than_it_must(
    counts: dict[bytes, int], steps: list[int], more: int
) -> None:
    target: dict[str, Partitions] = {}
    for step in steps:
        members = specs({f"m{number}": frozenset(counts) for number in range(step)}, target)
        after = uniform(members, {topic: TopicSpec(count) for topic, count in counts.items()})
        check_covers(after, members, counts)
        loads = sizes(after)
        assert max(loads.values()) - min(loads.values()) <= 1
        for member in after.keys() & target.keys():
            # A member loses partitions only above what it may have, and gains none while it does.
            lost = flat(target[member]) - flat(after[member])
            assert len(lost) == max(0, len(flat(target[member])) - loads[member])
        again = specs({member: spec.topics for member, spec in members.items()}, after)
        assert uniform(again, {topic: TopicSpec(count) for topic, count in counts.items()}) == after
        target = after
        counts = {topic: count + more for topic, count in counts.items()}


@settings(max_examples=examples(30), deadline=None)
@given(
    counts=st.fixed_dictionaries({topic: st.integers(1, 8) for topic in IDS}),
    subscriptions=st.lists(st.frozensets(st.sampled_from(IDS), min_size=1), min_size=2, max_size=6),
)
def test_uniform_with_different_subscriptions(
    counts: dict[bytes, int], subscriptions: list[frozenset[bytes]]
) -> None:
    by_member = {f"m{number}": topics for number, topics in enumerate(subscriptions)}
    topics = {topic: TopicSpec(count) for topic, count in counts.items()}
    members = specs(by_member, {})
    target = uniform(members, topics)
    check_covers(target, members, counts)
    loads = sizes(target)
    for topic in counts:
        # Where a member has a partition of a topic, no other subscriber of it has two fewer in all.
        for owner, parts in target.items():
            if parts.get(topic):
                for other, subscribed in by_member.items():
                    if topic in subscribed:
                        assert loads[owner] - loads[other] <= 1
    assert uniform(specs(by_member, target), topics) == target


def test_uniform_prefers_partitions_in_the_members_rack() -> None:
    racks = tuple(frozenset({"ab"[index % 2]}) for index in range(6))
    members = {
        "m1": MemberSpec(frozenset(IDS[:1]), {}, None, "b"),
        "m2": MemberSpec(frozenset(IDS[:1]), {}, None, "a"),
    }
    target = uniform(members, {IDS[0]: TopicSpec(6, racks)})
    assert target == {"m1": {IDS[0]: frozenset({1, 3, 5})}, "m2": {IDS[0]: frozenset({0, 2, 4})}}


def test_uniform_keeps_what_is_in_the_members_rack() -> None:
    """The first member has everything when the second one comes."""
    racks = tuple(frozenset({"ab"[index % 2]}) for index in range(4))
    of_both = frozenset(IDS[:2])
    topics = {topic_id: TopicSpec(4, racks) for topic_id in of_both}
    everything = {topic_id: frozenset(range(4)) for topic_id in of_both}
    members = {"m1": MemberSpec(of_both, everything, None, "b"), "m2": MemberSpec(of_both, {}, None, "a")}
    target = uniform(members, topics)
    assert target == {
        "m1": dict.fromkeys(of_both, frozenset({1, 3})),
        "m2": dict.fromkeys(of_both, frozenset({0, 2})),
    }


def test_uniform_rack_gives_way_to_balance() -> None:
    racks = (frozenset({"a"}),) * 4
    members = {
        "m1": MemberSpec(frozenset(IDS[:1]), {}, None, "a"),
        "m2": MemberSpec(frozenset(IDS[:1]), {}, None, "b"),
    }
    assert sizes(uniform(members, {IDS[0]: TopicSpec(4, racks)})) == {"m1": 2, "m2": 2}


@settings(max_examples=examples(30), deadline=None)
@given(data=st.data())
def test_racks_change_no_sizes_of_different_subscriptions(data: st.DataObject) -> None:
    """Whether members join an empty group or have partitions: how many of each topic each has, and how many move."""
    racks = st.sampled_from("abc")
    topics = {
        topic: TopicSpec(count, tuple(data.draw(st.frozensets(racks, max_size=2)) for _ in range(count)))
        for topic, count in data.draw(TOPICS).items()
    }
    members: dict[str, MemberSpec] = {}
    target: dict[str, Partitions] = {}
    for number in range(data.draw(st.integers(2, 5))):
        subscribed = data.draw(st.frozensets(st.sampled_from(sorted(topics)), min_size=1))
        members[f"m{number}"] = MemberSpec(subscribed, {}, None, data.draw(st.none() | racks))
        members = {member: spec._replace(target=target.get(member, {})) for member, spec in members.items()}
        without = uniform(members, {topic: TopicSpec(spec.partitions) for topic, spec in topics.items()})
        target = uniform(members, topics)
        check_covers(target, members, {topic: spec.partitions for topic, spec in topics.items()})
        if len({spec.topics for spec in members.values()}) == 1:
            continue
        for member, spec in members.items():
            assert {t: len(each) for t, each in target[member].items()} == {
                t: len(each) for t, each in without[member].items()
            }
            assert len(flat(spec.target) - flat(target[member])) == len(
                flat(spec.target) - flat(without[member])
            )
        settled = {member: spec._replace(target=target[member]) for member, spec in members.items()}
        assert uniform(settled, topics) == target


def test_uniform_with_different_subscriptions_prefers_the_members_rack() -> None:
    one, two = IDS[:2]
    topics = {one: TopicSpec(6, tuple(frozenset({"ab"[index % 2]}) for index in range(6))), two: TopicSpec(1)}
    first = MemberSpec(frozenset({one, two}), {}, None, "b")
    second = MemberSpec(frozenset({one}), {}, None, "a")
    target = uniform({"m1": first, "m2": second}, topics)
    assert target["m1"].keys() == {one, two}
    assert target["m1"][one] <= {1, 3, 5}
    assert target["m2"] == {one: frozenset({0, 2, 4} | ({1, 3, 5} - target["m1"][one]))}
    # Likewise when the second one comes to a group whose first member has everything.
    everything = first._replace(target={one: frozenset(range(6)), two: frozenset({0})})
    assert uniform({"m1": everything, "m2": second}, topics)["m2"] == {one: frozenset({0, 2, 4})}


@settings(max_examples=examples(30), deadline=None)
@given(counts=TOPICS, members=st.integers(1, 6))
def test_ranges_are_in_order_and_alike(counts: dict[bytes, int], members: int) -> None:
    subscribed = specs({f"m{number}": frozenset(counts) for number in range(members)}, {})
    target = by_range(subscribed, {topic: TopicSpec(count) for topic, count in counts.items()})
    check_covers(target, subscribed, counts)
    for topic, count in counts.items():
        parts = [sorted(target[member].get(topic, ())) for member in sorted(target)]
        assert [index for part in parts for index in part] == list(range(count))
        assert all(len(one) >= len(two) for one, two in pairwise(parts))


def test_ranges_of_static_members_survive_new_ids() -> None:
    topics = {IDS[0]: TopicSpec(3)}
    first = {"a": MemberSpec(frozenset(topics), {}, "i1"), "b": MemberSpec(frozenset(topics), {}, "i2")}
    again = {"z": MemberSpec(frozenset(topics), {}, "i1"), "b": MemberSpec(frozenset(topics), {}, "i2")}
    assert by_range(first, topics)["a"] == by_range(again, topics)["z"]


def test_assignors_by_name_and_by_class() -> None:
    prefix = "org.apache.kafka.coordinator.group.assignor."
    assert assignor_names([f"{prefix}RangeAssignor", "uniform", "range"]) == ("range", "uniform")
