"""Replicas are spread evenly, over brokers and over racks."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_broker.controller.placement import alternated, place
from ottla_protocol.errors import ErrorCode, KafkaError


def test_the_example_of_kafkas_documentation() -> None:
    # AdminUtils: ten partitions on five brokers, three replicas, start and shift 0.
    made = place(dict.fromkeys(range(5)), 10, 3)
    assert made == {
        0: (0, 1, 2), 1: (1, 2, 3), 2: (2, 3, 4), 3: (3, 4, 0), 4: (4, 0, 1),
        5: (0, 2, 3), 6: (1, 3, 4), 7: (2, 4, 0), 8: (3, 0, 1), 9: (4, 1, 2),
    }  # fmt: skip


def test_brokers_alternate_between_racks() -> None:
    racks = {0: "rack1", 1: "rack3", 2: "rack3", 3: "rack2", 4: "rack2", 5: "rack1"}
    assert alternated(racks) == [0, 3, 1, 5, 4, 2]
    assert place(dict(racks), 6, 3) == {
        0: (0, 3, 1), 1: (3, 1, 5), 2: (1, 5, 4), 3: (5, 4, 2), 4: (4, 2, 0), 5: (2, 0, 3),
    }  # fmt: skip


def test_new_partitions_go_on_where_the_old_ones_end() -> None:
    brokers = dict.fromkeys(range(4))
    both = place(brokers, 8, 2, start=1, shift=2)
    assert {**place(brokers, 3, 2, start=1, shift=2)} == {i: both[i] for i in range(3)}


@given(
    st.dictionaries(st.integers(0, 50), st.sampled_from(["a", "b", "c", None]), min_size=1, max_size=12),
    st.integers(1, 60),
    st.integers(1, 5),
    st.integers(0, 100),
    st.integers(0, 100),
)
def test_every_partition_has_its_replicas_on_as_many_racks_as_there_are(
    brokers: dict[int, str | None], count: int, factor: int, start: int, shift: int
) -> None:
    if factor > len(brokers):
        with pytest.raises(KafkaError) as caught:
            place(brokers, count, factor)
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
        return
    made = place(brokers, count, factor, start=start, shift=shift)
    assert sorted(made) == list(range(count))
    for replicas in made.values():
        assert len(set(replicas)) == factor
        assert set(replicas) <= set(brokers)
    leaders = Counter(replicas[0] for replicas in made.values())
    assert max(leaders.values()) - min(leaders[b] for b in brokers) <= 1
    if None not in brokers.values():
        racks = len(set(brokers.values()))
        for replicas in made.values():
            assert len({brokers[b] for b in replicas}) == min(factor, racks)


@pytest.mark.parametrize(
    ("count", "factor", "code"),
    [(0, 1, ErrorCode.INVALID_PARTITIONS), (1, 0, ErrorCode.INVALID_REPLICATION_FACTOR)],
)
def test_invalid_numbers_are_refused(count: int, factor: int, code: ErrorCode) -> None:
    with pytest.raises(KafkaError) as caught:
        place({1: None}, count, factor)
    assert caught.value.code is code
