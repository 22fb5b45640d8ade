"""Subscriptions and assignments as bytes."""

from __future__ import annotations

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_client.group.assignors import NO_GENERATION, Subscription
from ottla_client.group.consumer_protocol import (
    assignment_bytes,
    read_assignment,
    read_subscription,
    subscription_bytes,
)
from ottla_client.types import TopicPartition
from ottla_protocol.errors import ProtocolError

NAMES = st.text(st.sampled_from("abc-."), min_size=1, max_size=5)
PARTITIONS = st.lists(st.builds(TopicPartition, NAMES, st.integers(0, 50)), unique=True)

# Written by Java's ConsumerProtocol of Kafka 3.9.1, in each version.
JAVA_SUBSCRIPTIONS = [
    "000000000002000161000162000000020102",
    "000100000002000161000162000000020102000000020001610000000200000000000000030001620000000100000001",
    "00020000000200016100016200000002010200000002000161000000020000000000000003000162000000010000000100000009",
    "0003000000020001610001620000000201020000000200016100000002000000000000000300016200000001000000010000000900027231",
]
JAVA_EMPTY = "000300000001000161ffffffff00000000ffffffffffff"
JAVA_ASSIGNMENT = "0003000000020001620000000200000001000000000001610000000100000003ffffffff"

OWNED = (TopicPartition("a", 0), TopicPartition("a", 3), TopicPartition("b", 1))
FULL = Subscription(frozenset("ab"), b"\x01\x02", OWNED, 9, "r1")


@settings(deadline=None)
@given(
    topics=st.sets(NAMES),
    data=st.none() | st.binary(max_size=20),
    owned=PARTITIONS,
    generation=st.integers(-1, 2**31 - 1),
    rack=st.none() | NAMES,
    instance=st.none() | NAMES,
)
def test_subscriptions_come_back_as_they_were(
    topics: set[str],
    data: bytes | None,
    owned: list[TopicPartition],
    generation: int,
    rack: str | None,
    instance: str | None,
) -> None:
    subscription = Subscription(frozenset(topics), data, tuple(sorted(owned)), generation, rack, instance)
    assert read_subscription(subscription_bytes(subscription), instance) == subscription


@pytest.mark.parametrize("version", range(4))
def test_every_version_of_javas_is_read_as_far_as_it_says(version: int) -> None:
    read = read_subscription(bytes.fromhex(JAVA_SUBSCRIPTIONS[version]))
    assert read == Subscription(
        FULL.topics,
        FULL.user_data,
        OWNED if version >= 1 else (),
        9 if version >= 2 else NO_GENERATION,
        "r1" if version >= 3 else None,
    )


def test_bytes_are_those_that_java_writes() -> None:
    assert subscription_bytes(FULL).hex() == JAVA_SUBSCRIPTIONS[3]
    assert subscription_bytes(Subscription(["a"])).hex() == JAVA_EMPTY
    partitions = (TopicPartition("b", 1), TopicPartition("a", 3), TopicPartition("b", 0))
    assert assignment_bytes(partitions).hex() == JAVA_ASSIGNMENT
    assert sorted(read_assignment(bytes.fromhex(JAVA_ASSIGNMENT))) == sorted(partitions)


def test_a_newer_version_is_read_as_the_newest_that_is_known() -> None:
    data = bytes.fromhex(JAVA_SUBSCRIPTIONS[3])
    assert read_subscription(b"\x00\x07" + data[2:] + b"more") == FULL


@settings(deadline=None)
@given(PARTITIONS)
def test_assignments_come_back_as_they_were(partitions: list[TopicPartition]) -> None:
    assert sorted(read_assignment(assignment_bytes(partitions))) == sorted(partitions)


@settings(deadline=None)
@given(st.binary(max_size=40))
def test_garbage_is_a_protocol_error(data: bytes) -> None:
    for read in (read_subscription, read_assignment):
        with contextlib.suppress(ProtocolError):
            read(data)
