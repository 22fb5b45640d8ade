"""Groups for the assignors to divide partitions among, made up at random."""

from __future__ import annotations

import random
from typing import Any

from ottla_client.group.assignors import NO_GENERATION, Assignor, Subscription, assignors_named
from ottla_client.group.assignors.sticky import CooperativeUserData, StickyUserData
from ottla_client.group.consumer_protocol import grouped, read_subscription, subscription_bytes
from ottla_client.types import TopicPartition

STRATEGIES = ("range", "roundrobin", "sticky", "cooperative-sticky")

# Where Java's result hangs on the order of its hash maps, these come in their order there as well as here.
MEMBERS = ("c3", "c4", "c5", "c6", "c7", "c8", "c9")


def make_case(chance: random.Random, strategy: str, *, same: bool) -> dict[str, Any]:
    """A case as the Java program ``Assignments`` takes it; ``same``: all members subscribe to the same topics.

    Sticky members have an earlier assignment, valid in its time: since then topics and members may have come and
    gone, and some member may be generations behind.
    """
    topics = {f"t{number}": chance.randint(1, 9) for number in range(chance.randint(1, 4))}
    members = sorted(chance.sample(MEMBERS, chance.randint(1, len(MEMBERS))))
    owned: dict[str, list[TopicPartition]] = {member: [] for member in members}
    generations = dict.fromkeys(members, 4)
    subscribed: dict[str, list[str]] = {}
    for member in members:
        some = sorted(chance.sample(sorted(topics), chance.randint(1, len(topics))))
        subscribed[member] = sorted(topics) if same else some
    if strategy not in ("range", "roundrobin") and chance.random() < 0.8:
        owners = chance.sample(members, chance.randint(1, len(members)))
        for topic, count in topics.items():
            readers = [member for member in owners if topic in subscribed[member]]
            for number in range(count):
                if readers and chance.random() < 0.85:
                    owned[chance.choice(readers)].append(TopicPartition(topic, number))
        for member in members:
            if not owned[member]:
                generations[member] = NO_GENERATION
    statics = chance.random() < 0.3
    case: dict[str, Any] = {"strategy": strategy, "topics": topics, "members": {}}
    for place, member in enumerate(members):
        subscription = _subscription(strategy, subscribed[member], owned[member], generations[member])
        instance = f"i{len(members) - place}" if statics and chance.random() < 0.6 else None
        case["members"][member] = {
            "instance": instance,
            "subscription": subscription_bytes(subscription).hex(),
        }
    return case


def _subscription(
    strategy: str, topics: list[str], owned: list[TopicPartition], generation: int
) -> Subscription:
    if strategy == "sticky":
        data = None
        if generation != NO_GENERATION:
            data = StickyUserData(previous_assignment=grouped(owned), generation=generation).encode(1)
        return Subscription(topics, data, (), generation)
    if strategy == "cooperative-sticky":
        data = CooperativeUserData(generation=generation).encode(0)
        return Subscription(topics, data, tuple(owned), generation)
    return Subscription(topics, None, (), generation)


def solve(case: dict[str, Any]) -> dict[str, Any]:
    """What our assignor makes of it, in the form of the program's answers."""
    members = {
        member: read_subscription(bytes.fromhex(each["subscription"]), each["instance"])
        for member, each in case["members"].items()
    }
    assignment = assignor(case["strategy"]).assign(case["topics"], members)
    user_data = {}
    for member, partitions in assignment.items():
        mine = assignor(case["strategy"])
        mine.on_assignment(tuple(partitions), 7)
        data = mine.user_data(members[member].topics)
        user_data[member] = None if data is None else data.hex()
    return {"assignment": assignment, "user_data": user_data}


def assignor(strategy: str) -> Assignor:
    return assignors_named([strategy])[0]


def as_sets(assignment: dict[str, list[Any]]) -> dict[str, list[tuple[str, int]]]:
    """An assignment without the order in which members have their partitions."""
    return {
        member: sorted((topic, number) for topic, number in partitions)
        for member, partitions in assignment.items()
    }
