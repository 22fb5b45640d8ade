"""Splits of ranges and limits of batches, without brokers."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from ottla_client.types import TopicPartition
from ottla_pipeline.reading import OffsetRange
from ottla_pipeline.source import loss
from ottla_pipeline.source.options import Splits
from ottla_pipeline.source.planner import limited_by_bytes, limited_by_offsets, offsets_between
from ottla_pipeline.source.planning import split


def span(at: TopicPartition, start: int, end: int) -> OffsetRange:
    return OffsetRange(at.topic, "", at.partition, start, end)


SPANS = st.lists(st.tuples(st.integers(0, 10**12), st.integers(1, 10**7)), min_size=1, max_size=20).map(
    lambda sizes: [
        span(TopicPartition("t", number), start, start + size) for number, (start, size) in enumerate(sizes)
    ]
)


def part(number: int = 0) -> TopicPartition:
    return TopicPartition("t", number)


def sizes(pieces: list[OffsetRange]) -> list[int]:
    return [piece.count for piece in pieces]


@given(
    SPANS,
    st.none() | st.integers(1, 50),
    st.none() | st.integers(10**6, 10**8),
    st.none() | st.integers(10**7, 10**9),
    st.floats(0, 100),
)
def test_pieces_are_the_spans_whole_and_in_order(
    spans: list[OffsetRange],
    least: int | None,
    records: int | None,
    size: int | None,
    bytes_per_offset: float,
) -> None:
    pieces = split(
        spans, Splits(least, records, size), {span.topic_partition: bytes_per_offset for span in spans}
    )
    for span in spans:
        own = [piece for piece in pieces if piece.partition == span.partition]
        assert own[0].start == span.start
        assert own[-1].end == span.end
        assert all(one.end == other.start for one, other in pairwise(own))
        assert all(piece.count > 0 for piece in own)
        assert max(sizes(own)) - min(sizes(own)) <= 1
        if records is not None:
            assert max(sizes(own)) <= records
    assert [piece.partition for piece in pieces] == sorted(piece.partition for piece in pieces)


def test_a_hot_partition_is_split_by_its_bytes() -> None:
    spans = [span(part(0), 0, 1000), span(part(1), 0, 1000)]
    pieces = split(spans, Splits(max_bytes=10_000), {part(0): 100.0, part(1): 1.0})
    assert sizes(pieces) == [100] * 10 + [1000]


def test_without_sizes_there_are_no_splits_by_bytes() -> None:
    assert sizes(split([span(part(), 0, 1000)], Splits(max_bytes=1), {})) == [1000]


def test_least_partitions_split_the_large_ones() -> None:
    """The example of Spark's connector: small spans stay whole, and don't count for the large ones."""
    spans = [span(part(0), 0, 5), span(part(1), 0, 1000), span(part(2), 0, 2000)]
    assert sizes(split(spans, Splits(min_partitions=10, max_bytes=None), {})) == [
        5,
        *[333, 333, 334],
        *[333, 333, 334] * 2,
    ]


def test_no_piece_is_without_an_offset() -> None:
    assert sizes(split([span(part(), 7, 9)], Splits(min_partitions=50), {})) == [1, 1]


def test_enough_partitions_stay_as_they_are() -> None:
    spans = [span(part(number), 0, 10) for number in range(4)]
    assert split(spans, Splits(min_partitions=4), {}) == spans


OFFSETS = st.dictionaries(
    st.integers(0, 30).map(part), st.tuples(st.integers(0, 10**12), st.integers(0, 10**9)), min_size=1
)


@given(OFFSETS, st.integers(1, 10**9))
def test_limits_are_kept_and_nobody_starves(ranges: dict[TopicPartition, tuple[int, int]], most: int) -> None:
    start = {each: first for each, (first, _) in ranges.items()}
    end = {each: first + size for each, (first, size) in ranges.items()}
    limited = limited_by_offsets(start, end, most)
    assert limited.keys() == end.keys()
    assert all(start[each] <= at <= end[each] for each, at in limited.items())
    # Partitions that would get less than one offset get one.
    assert offsets_between(start, limited) <= most + len(ranges)
    assert all(limited[each] > start[each] for each in end if end[each] > start[each])
    if offsets_between(start, end) <= most:
        assert limited == end


def test_offsets_are_shared_in_proportion() -> None:
    start = {part(0): 0, part(1): 100, part(2): 0}
    end = {part(0): 10, part(1): 190, part(2): 0}
    assert limited_by_offsets(start, end, 50) == {part(0): 5, part(1): 145, part(2): 0}


def test_bytes_are_shared_in_proportion() -> None:
    start = {part(0): 0, part(1): 0, part(2): 0}
    end = {part(0): 100, part(1): 100, part(2): 7}
    found = limited_by_bytes(start, end, 5_500, {part(0): 100.0, part(1): 10.0})
    assert found == {part(0): 50, part(1): 50, part(2): 7}


def test_losses_say_what_and_why() -> None:
    assert str(loss.retention(part(), 5, 9)).startswith("t-0: offsets 5 to 8 (retention: the log starts at 9")
    assert str(loss.retention(part(), 5, 90, 7)).startswith("t-0: offsets 5 to 6 (retention")
    assert str(loss.truncation(part(), 5, 4)).startswith("t-0: offset 4 (truncation: the log ends at 4")
    assert str(loss.deletion(part(), 5, None)) == "t-0: offsets from 5 on (deletion: the topic was deleted)"
    assert "made again" in str(loss.recreated(part(), 5, 8))


def test_topics_are_others_where_both_ids_are_known_and_differ() -> None:
    assert loss.other_topics({"a": "1", "b": "2", "c": "", "d": "4"}, {"a": "1", "b": "3", "c": "9"}) == {"b"}
