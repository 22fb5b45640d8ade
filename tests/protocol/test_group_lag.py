"""The records of groups' lag: their places, and what a reader makes of them."""

from __future__ import annotations

import contextlib
import itertools
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.support.group_lag import read_history

from ottla_protocol.errors import ProtocolError
from ottla_protocol.group_lag import (
    COARSE,
    FINE,
    GROUPS_A_RECORD,
    IN_ZOOKEEPER,
    HistoryReader,
    LagSample,
    levels_of,
    number_of,
    records_of,
    sample_of,
)
from ottla_protocol.messages.group_lag_records import GroupLagState

MINUTE = 60_000


def state(name: str = "g", records: int = 5, kind: int = 0) -> GroupLagState:
    return GroupLagState(
        group_id=name, kind=kind, records=records, most_records=records, lag_ms=10, slope=math.nan
    )


def kept(numbers: range, source: int = 3, name: str = "g") -> dict[bytes, bytes]:
    """What compaction leaves of the samples with these numbers."""
    log: dict[bytes, bytes] = {}
    for number in numbers:
        for level in levels_of(number):
            log.update(records_of(level, number, source, number * MINUTE, [state(name, number)]))
    return log


def test_a_week_is_kept_and_keys_have_a_bound() -> None:
    last = 29_000_000
    week = 7 * 24 * 60
    log = kept(range(last - 2 * week, last + 1))
    assert len(log) == FINE.slots + COARSE.slots
    found = read_history(log.items(), "g", 3, (last - week) * MINUTE)
    numbers = [number_of(each.time_ms, MINUTE) for each in found]
    assert numbers == sorted(numbers)
    assert numbers[-FINE.slots :] == list(range(last - FINE.slots + 1, last + 1))
    assert numbers[0] - (last - week) < COARSE.every
    assert all(later - earlier <= COARSE.every for earlier, later in itertools.pairwise(numbers))
    assert [each.records for each in found] == numbers


def test_groups_of_other_sources_and_names_are_passed_over() -> None:
    log = {**kept(range(3), 3), **kept(range(3), 4), **kept(range(3), IN_ZOOKEEPER, "old")}
    assert len(read_history(log.items(), "g", 3, 0)) == 3
    assert len(read_history(log.items(), "old", 3, 0)) == 3
    assert not read_history(log.items(), "other", 3, 0)
    assert [each.time_ms for each in read_history(log.items(), "g", 3, 2 * MINUTE)] == [2 * MINUTE]


def test_many_groups_take_several_records() -> None:
    states = [state(f"group-{number}") for number in range(2 * GROUPS_A_RECORD + 1)]
    rows = list(records_of(FINE, 7, 0, 7 * MINUTE, states))
    assert len(dict(rows)) == 3
    assert len(read_history(rows, states[-1].group_id, 0, 0)) == 1


def test_a_group_that_commits_to_both_is_shown_by_its_own_commits() -> None:
    for order in ((0, 3), (3, 0)):
        rows = [
            row
            for kind in order
            for row in records_of(FINE, 7, IN_ZOOKEEPER if kind == 3 else 1, MINUTE, [state(kind=kind)])
        ]
        (found,) = read_history(rows, "g", 1, 0)
        assert found.kind == "classic"


def test_times_until_the_lag_is_gone() -> None:
    def after(records: int | None, slope: float | None) -> int | None:
        return LagSample(0, "classic", records, records, 0, 0, slope, 1, 0).catch_up_ms

    assert after(100, -2.0) == 50_000
    assert after(0, None) == 0
    assert (after(100, 2.0), after(100, 0.0), after(None, -1.0), after(100, None)) == (None,) * 4
    found = sample_of(1, GroupLagState(group_id="g", slope=-math.inf))
    assert found.document() == {
        "time_ms": 1,
        "kind": "classic",
        "lag_records": None,
        "most_lag_records": None,
        "lag_seconds": None,
        "trend_records_per_second": None,
        "catch_up_seconds": None,
        "commit_age_seconds": None,
        "partitions": 0,
        "unknown_partitions": 0,
    }


@given(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=60))
def test_other_records_are_an_error_or_nothing(key: bytes | None, value: bytes | None) -> None:
    reader = HistoryReader("g", 3, 0)
    with contextlib.suppress(ProtocolError):
        reader.add(key, value)
    assert reader.samples() == []


def test_an_unknown_kind_is_an_error() -> None:
    rows = list(records_of(FINE, 7, 0, MINUTE, [state(kind=9)]))
    with pytest.raises(ProtocolError):
        HistoryReader("g", 0, 0).add(*rows[0])
