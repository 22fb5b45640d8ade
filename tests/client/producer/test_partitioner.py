"""Partitions of keys as in Java, and of records without keys."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from aiokafka.partitioner import murmur2 as murmur2_of_aiokafka
from hypothesis import given, settings
from hypothesis import strategies as st

from ottla_client.producer.partitioner import StickyPartition, deal, murmur2, partition_for_key

# From the Java client's UtilsTest, and its hashes of a few lengths and of bytes above 127.
GOLDEN = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "expected"), GOLDEN.items())
def test_hashes_of_the_java_client(key: bytes, expected: int) -> None:
    assert murmur2(key) == expected & 0xFFFFFFFF
    assert partition_for_key(key, 12) == (expected & 0x7FFFFFFF) % 12


@settings(deadline=None)
@given(st.binary(max_size=200))
def test_hashes_as_aiokafka(key: bytes) -> None:
    assert murmur2(key) == murmur2_of_aiokafka(key)


@settings(deadline=None)
@given(
    st.lists(st.one_of(st.binary(max_size=9), st.binary(min_size=7, max_size=7)), min_size=1, max_size=40),
    st.integers(1, 20),
)
def test_many_keys_at_once(some: list[bytes], count: int) -> None:
    keys = some * 8  # enough that numpy pays
    expected: dict[int, list[int]] = {}
    for place, key in enumerate(keys):
        expected.setdefault(partition_for_key(key, count), []).append(place)
    assert deal(keys, count) == expected


def test_many_keys_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    keys = [b"%d" % number for number in range(1000)]
    fast = deal(keys, 7)
    monkeypatch.setitem(__import__("sys").modules, "numpy", None)
    assert deal(keys, 7) == fast


def test_sticks_until_a_batch_is_full() -> None:
    sticky = StickyPartition(1000, Random(1))
    first = sticky.draw([0, 1, 2], [0, 0, 0])
    sticky.batch_closed(600)
    assert sticky.partition == first
    sticky.batch_closed(600)
    assert sticky.partition is None


def test_draws_short_queues_more_often() -> None:
    sticky = StickyPartition(1000, Random(1))
    # Weights by KIP-794: 4, 1, 3 of 8.
    drawn = Counter(sticky.draw([5, 6, 7], [0, 3, 1]) for _ in range(8000))
    assert drawn[5] > drawn[7] > drawn[6]
    assert 3700 < drawn[5] < 4300
    assert 2700 < drawn[7] < 3300
