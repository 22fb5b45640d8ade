"""What a table knows of each partition: a state machine of spans."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_client.types import TopicPartition
from ottla_pipeline.landing.errors import Collision, DataGone, LandingError
from ottla_pipeline.landing.ledger import LandedRange, Ledger, limit

PLACE = TopicPartition("flights", 0)
NUMBERS = st.integers(0, (1 << 64) - 1)


def extended(ledger: Ledger, *spans: LandedRange, gaps: bool = False) -> Ledger:
    return ledger.extended("t", {PLACE: spans}, {"flights": "id"}, gaps=gaps)


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3), NUMBERS), max_size=200))
def test_what_is_joined_keeps_its_sums(steps: list[tuple[int, int, int]]) -> None:
    ledger = Ledger()
    made: list[LandedRange] = []
    end = 0
    for length, gap, total in steps:
        start = end + gap
        end = start + length
        made.append(LandedRange(start, end, length, total, gap))
        ledger = extended(ledger, made[-1], gaps=True)
        ledger = Ledger.from_json(json.loads(json.dumps(ledger.to_json())))
    spans = ledger.landed.get(PLACE, ())
    assert all(a.end <= b.start for a, b in pairwise(spans))
    gaps = sum(a.end < b.start for a, b in pairwise(spans))
    assert len(spans) <= limit(1) + gaps
    kept = [one for i, one in enumerate(made) if i == 0 or one.start < one.end]
    assert sum(one.count for one in spans) == sum(one.count for one in kept)
    assert sum(one.total for one in spans) % (1 << 64) == sum(one.total for one in kept) % (1 << 64)
    assert ledger.next(PLACE) == (kept[-1].end if kept else None)


def test_only_what_comes_next_gets_in() -> None:
    ledger = extended(Ledger(), LandedRange(5, 5), LandedRange(5, 10, 5))
    assert ledger.offsets() == {PLACE: 10}
    assert ledger.next(TopicPartition("flights", 1)) is None
    for span in (LandedRange(5, 10), LandedRange(9, 12), LandedRange(0, 20)):
        with pytest.raises(Collision, match="another job lands in it"):
            extended(ledger, span, gaps=True)
    with pytest.raises(DataGone, match="up to offset 10, and the next records begin at 11"):
        extended(ledger, LandedRange(11, 12))
    assert extended(ledger, LandedRange(11, 12), gaps=True).next(PLACE) == 12


def test_another_topic_by_the_same_name() -> None:
    ledger = extended(Ledger(), LandedRange(0, 1))
    with pytest.raises(Collision, match="deleted and made again"):
        ledger.extended("t", {PLACE: (LandedRange(1, 2),)}, {"flights": "other"}, gaps=False)
    assert ledger.extended("t", {PLACE: (LandedRange(1, 2),)}, {"flights": ""}, gaps=False).ids == {
        "flights": "id"
    }


def test_the_smallest_neighbours_are_joined_first() -> None:
    ledger = extended(Ledger(), LandedRange(0, 1000, 1000))
    for at in range(1000, 1100):
        ledger = extended(ledger, LandedRange(at, at + 1, 1, 1))
    spans = ledger.landed[PLACE]
    assert len(spans) == limit(1)
    assert spans[0] == LandedRange(0, 1000, 1000), "what is large stays apart for longest"
    assert sum(one.total for one in spans) == 100


def test_many_partitions_have_fewer_spans_each() -> None:
    assert limit(1) == limit(32) == 64
    assert limit(256) == 8
    assert limit(100_000) == 4


@pytest.mark.parametrize(
    "data",
    [
        {"t": 1},
        {"t": {"id": ""}},
        {"t": {"id": "", "partitions": {"0": [[1]]}}},
        {"t": {"id": "", "partitions": {"x": []}}},
    ],
)
def test_what_is_no_ledger(data: dict[str, object]) -> None:
    with pytest.raises(LandingError, match="can't be read"):
        Ledger.from_json(data)
