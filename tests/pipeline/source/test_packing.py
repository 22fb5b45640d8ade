"""Which ranges share a task, without brokers."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from ottla_client.types import TopicPartition
from ottla_pipeline.reading import OffsetRange
from ottla_pipeline.source.options import Splits
from ottla_pipeline.source.planning import TOGETHER_BYTES, TOGETHER_OFFSETS, TOGETHER_RANGES, pack


def ranges(*sizes: int) -> list[OffsetRange]:
    return [OffsetRange("t", "", number, 0, size) for number, size in enumerate(sizes)]


def shared(*sizes: int, each: float | None = 100.0, splits: Splits | None = None) -> list[list[int]]:
    """The sizes of each task's ranges."""
    bytes_per_offset = (
        {} if each is None else {TopicPartition("t", number): each for number in range(len(sizes))}
    )
    tasks = pack(ranges(*sizes), splits or Splits(), bytes_per_offset)
    return [[one.end for one in task] for task in tasks]


@given(
    st.lists(st.integers(1, 2 * TOGETHER_OFFSETS), max_size=60),
    st.none() | st.floats(0, 10_000),
    st.none() | st.integers(1, 10**6),
    st.none() | st.integers(1, 10**8),
)
def test_all_is_there_in_order_and_tasks_of_several_ranges_are_small(
    sizes: list[int], each: float | None, records: int | None, most: int | None
) -> None:
    tasks = shared(*sizes, each=each, splits=Splits(None, records, most))
    assert [one for task in tasks for one in task] == sizes
    for task in tasks:
        assert task
        if len(task) > 1:
            assert len(task) <= TOGETHER_RANGES
            assert sum(task) <= min(TOGETHER_OFFSETS, records or TOGETHER_OFFSETS)
            assert each is not None
            assert sum(task) * each <= min(TOGETHER_BYTES, most or TOGETHER_BYTES) + 1


def test_small_ones_share_and_large_ones_do_not() -> None:
    assert shared(2_500, 2_500, 2_500, 2_500) == [[2_500] * 4]
    assert shared(1_500_000, 10, 10, 1_500_000) == [[1_500_000], [10, 10], [1_500_000]]
    assert shared(*[10] * 40) == [[10] * 16, [10] * 16, [10] * 8]


def test_offsets_that_take_much_do_not_share() -> None:
    assert shared(30, 30, 30, each=50_000.0) == [[30, 30], [30]]
    assert shared(30, 30, each=None) == [[30], [30]]


def test_whoever_asks_for_tasks_gets_them() -> None:
    assert shared(10, 10, splits=Splits(min_partitions=1)) == [[10], [10]]
    assert shared(10, 10, 10, splits=Splits(max_records=20)) == [[10, 10], [10]]
    assert shared(10, 10, splits=Splits(max_bytes=1_500)) == [[10], [10]]
