"""The 2012 coordinator without a connection: subscriptions, who reads what, and when a rebalance is needed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.coordinator.push.assignment import (
    Need,
    in_shares,
    rebalance_need,
    thread_id,
    threads_in_order,
)
from ottla_broker.coordinator.push.states import NEXT, GroupState
from ottla_broker.coordinator.push.subscription import parse_topic_count
from ottla_broker.metadata.internal_topics import INTERNAL_TOPICS
from ottla_protocol.errors import KafkaError


def _assigned(partitions: int, consumers: Mapping[str, int]) -> dict[int, str]:
    """Who owns which partition of a topic, by the algorithm as its authors wrote it: all ids are made and sorted."""
    ids = sorted(thread_id(name, stream) for name, streams in consumers.items() for stream in range(streams))
    if not ids:
        return {}
    each, extra = divmod(partitions, len(ids))
    shares = [each + (index < extra) for index in range(len(ids))]
    return dict(enumerate(owner for owner, share in zip(ids, shares, strict=True) for _ in range(share)))


@given(
    st.integers(0, 40),
    st.dictionaries(st.text("ab0-", min_size=1, max_size=3), st.integers(1, 30), max_size=4),
)
def test_streams_share_a_topic_fairly(partitions: int, consumers: dict[str, int]) -> None:
    readers = sorted(consumers, key=lambda name: thread_id(name, 0))
    found = threads_in_order((name, name, consumers[name]) for name in readers)
    threads = list(islice(found, partitions))
    assert all(thread.rpartition("-")[0] == name for thread, name in threads)
    owners = {number: thread for number, (thread, _) in in_shares(range(partitions), threads)}
    assert owners == _assigned(partitions, consumers)


def test_of_very_many_streams_only_those_with_partitions_get_ids() -> None:
    def readers() -> Iterator[tuple[int, str, int]]:
        for number in range(1_000_000):
            assert number < 3
            yield number, f"c{number:07}", 1_000

    found = [thread for thread, _ in islice(threads_in_order(readers()), 1_002)]
    assert found[:3] == ["c0000000-0", "c0000000-1", "c0000000-10"]
    assert found[-2:] == ["c0000001-0", "c0000001-1"]


def test_the_tests_of_need() -> None:
    wanted = {("t", 0): "a-0", ("t", 1): "b-0"}
    assert rebalance_need(wanted, {}, True) is Need.NO_OWNERSHIP
    assert rebalance_need(wanted, {("t", 0): "a-0"}, True) is Need.NOT_OWNED
    assert rebalance_need(wanted, {**wanted, ("t", 1): None}, True) is Need.NOT_OWNED
    assert rebalance_need(wanted, {**wanted, ("t", 2): "a-0"}, True) is Need.GONE
    assert rebalance_need(wanted, {**wanted, ("t", 1): "a-0"}, True) is Need.OTHER_OWNERS
    assert rebalance_need(wanted, wanted, False) is Need.NOT_STARTED
    assert rebalance_need(wanted, wanted, True) is None
    assert rebalance_need({}, {}, True) is None


def test_a_pattern_has_no_internal_topic() -> None:
    known = ["orders", *INTERNAL_TOPICS]
    for text in ("*1*.*", "!1!none"):
        assert list(parse_topic_count(text).among(known)) == ["orders"]


def test_every_state_of_a_group_can_end_and_is_reached() -> None:
    assert set(NEXT) == set(GroupState)
    assert set().union(*NEXT.values()) == set(GroupState)
    assert all(GroupState.IDLE in following for following in NEXT.values())


@pytest.mark.parametrize("text", ["[]", "null", "{", "*x*a", "*0*a", '{"t":true}', '{"t":"1"}', "[" * 30_000])
def test_a_subscription_is_streams_by_topic_or_a_pattern(text: str) -> None:
    with pytest.raises(KafkaError):
        parse_topic_count(text)
