"""Which stream gets which partition."""

from __future__ import annotations

import hypothesis.strategies as st
import pytest
from hypothesis import given

from ottla_client import TopicPartition
from ottla_client.zookeeper_consumer.assignors import (
    STRATEGIES,
    assign_range,
    assign_roundrobin,
    in_order,
)
from ottla_client.zookeeper_consumer.subscription import ThreadId

NAMES = st.sampled_from(["g_host-1", "g_host-10", "g_host-2", "g_é", "g_\U0001f600", "g_\uffee"])
THREADS = st.dictionaries(NAMES, st.integers(1, 3), max_size=4)
PARTITIONS = st.dictionaries(st.sampled_from(["a", "b.c", "d_e"]), st.integers(0, 9), max_size=3)


def threads_of(consumers: dict[str, int]) -> list[ThreadId]:
    return [ThreadId(name, index) for name, count in consumers.items() for index in range(count)]


@pytest.mark.parametrize("strategy", STRATEGIES)
@given(partitions=PARTITIONS, consumers=THREADS)
def test_every_partition_has_one_stream(
    strategy: str, partitions: dict[str, int], consumers: dict[str, int]
) -> None:
    threads = threads_of(consumers)
    known = {topic: range(count) for topic, count in partitions.items()}
    assigned = STRATEGIES[strategy](known, dict.fromkeys(partitions, threads))
    every = {TopicPartition(topic, number) for topic in known for number in known[topic]}
    assert assigned.keys() == (every if threads else set())
    counts = [list(assigned.values()).count(thread) for thread in threads]
    if strategy == "roundrobin" and counts:
        assert max(counts) - min(counts) <= 1


def test_kafkas_example() -> None:
    """RangeAssignor's documentation: two consumers of two streams, five partitions."""
    threads = threads_of({"C1": 2, "C2": 2})
    assigned = assign_range({"t": range(5)}, {"t": threads})
    assert [str(assigned[TopicPartition("t", number)]) for number in range(5)] == [
        "C1-0",
        "C1-0",
        "C1-1",
        "C2-0",
        "C2-1",
    ]


def test_order_is_javas() -> None:
    """By UTF-16 code units: a surrogate pair comes before U+FFEE."""
    threads = threads_of({"c\uffee": 1, "c\U0001f600": 1, "c": 11})
    assert [str(each) for each in in_order(threads)] == [
        "c-0",
        "c-1",
        "c-10",
        *(f"c-{number}" for number in range(2, 10)),
        "c\U0001f600-0",
        "c\uffee-0",
    ]


def test_streams_get_only_their_topics() -> None:
    one, other = ThreadId("c1", 0), ThreadId("c2", 0)
    threads = {"a": [one], "b": [one, other]}
    known = {"a": range(4), "b": range(4)}
    for assign in (assign_range, assign_roundrobin):
        assigned = assign(known, threads)
        assert all(thread == one for partition, thread in assigned.items() if partition.topic == "a")
        assert {thread for partition, thread in assigned.items() if partition.topic == "b"} >= {other}
