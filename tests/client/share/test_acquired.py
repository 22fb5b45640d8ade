"""Which of a fetch's records a member has acquired, beside sets of offsets."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_client.consumer.acquired import Acquired

OFFSETS = st.integers(0, 60)


@st.composite
def runs(draw: st.DrawFn) -> list[tuple[int, int, int]]:
    """Runs that go up, with or without gaps between them, and their delivery counts."""
    places = sorted(draw(st.sets(OFFSETS)))
    made: list[tuple[int, int, int]] = []
    for place in places:
        if made and made[-1][1] + 1 == place and draw(st.booleans()):
            made[-1] = (made[-1][0], place, made[-1][2])
        else:
            made.append((place, place, draw(st.integers(1, 5))))
    return made


@given(runs(), st.sets(OFFSETS), OFFSETS, OFFSETS)
def test_it_is_a_set_of_offsets(
    wanted: list[tuple[int, int, int]], there: set[int], start: int, end: int
) -> None:
    acquired = Acquired(wanted)
    counts = {offset: count for first, last, count in wanted for offset in range(first, last + 1)}
    offsets = sorted(there)
    places, deliveries = acquired.among(offsets)
    assert [offsets[place] for place in places] == [offset for offset in offsets if offset in counts]
    assert deliveries == [counts[offset] for offset in offsets if offset in counts]
    between = [offset for first, last in acquired.between(start, end) for offset in range(first, last + 1)]
    assert between == [offset for offset in counts if start <= offset < end]
    without = [
        offset for first, last in acquired.without(offsets, start, end) for offset in range(first, last + 1)
    ]
    assert without == [offset for offset in between if offset not in there]


@pytest.mark.parametrize("bad", [[(3, 2, 1)], [(0, 4, 1), (4, 5, 1)], [(5, 6, 1), (0, 1, 1)], [(-1, 3, 1)]])
def test_runs_that_make_no_sense_are_refused(bad: list[tuple[int, int, int]]) -> None:
    with pytest.raises(ValueError, match="acquired offsets"):
        Acquired(bad)
