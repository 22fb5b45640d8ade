"""Arguments of the administrative commands, and how values are shown."""

from __future__ import annotations

import re
from contextlib import suppress

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ottla_cli.shared.admin import (
    duration_in,
    moment_in,
    numbers_in,
    partitions_in,
    ranges_of,
    show_partitions,
    show_seconds,
)
from ottla_client.types import TopicPartition


@given(st.sets(st.integers(0, 200), min_size=1))
def test_ranges_are_read_as_they_are_written(numbers: set[int]) -> None:
    assert numbers_in(ranges_of(numbers), "--x") == sorted(numbers)


@given(st.text(max_size=20))
def test_other_texts_are_refused_as_usage(text: str) -> None:
    for parse in (numbers_in, partitions_in, duration_in, moment_in):
        with suppress(click.BadParameter):
            parse(text, "--x")


@pytest.mark.parametrize("text", ["", "x", "1-", "-1", "3-1", "0-99999999999", "1,,2", "٣-1"])
def test_invalid_partitions(text: str) -> None:
    with pytest.raises(click.BadParameter):
        numbers_in(text, "--x")


def test_topics_with_partitions() -> None:
    assert partitions_in("orders", "--x") == ("orders", None)
    assert partitions_in("orders:0,2,4-6", "--x") == ("orders", [0, 2, 4, 5, 6])
    shown = show_partitions([TopicPartition("b", 1), TopicPartition("a", 2), TopicPartition("a", 1)])
    assert shown == "a:1-2 b:1"


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [
        ("PT1H", 3_600_000),
        ("pt1h30m", 5_400_000),
        ("P1DT0.5S", 86_400_500),
        ("P2W", 1_209_600_000),
        ("1h30m", 5_400_000),
        ("90s", 90_000),
        ("2d", 172_800_000),
    ],
)
def test_durations(text: str, milliseconds: int) -> None:
    assert duration_in(text, "--x") == milliseconds


@pytest.mark.parametrize("text", ["", "P", "PT", "1", "soon", "-1h", "PT-1H", "P" + "9" * 400 + "D"])
def test_invalid_durations(text: str) -> None:
    with pytest.raises(click.BadParameter, match="PT1H30M"):
        duration_in(text, "--x")


def test_moments() -> None:
    assert moment_in("1970-01-02T00:00:00Z", "--x") == 86_400_000
    assert moment_in("1970-01-02T02:00:00+02:00", "--x") == 86_400_000
    for wrong in ("soon", "1960-01-01T00:00:00Z", "9" * 400):
        with pytest.raises(click.BadParameter):
            moment_in(wrong, "--x")


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [
        (0, "0s"),
        (0.04, "0.0s"),
        (0.44, "0.4s"),
        (42.9, "42s"),
        (725, "12m05s"),
        (11_520, "3h12m"),
        (442_800, "5d03h"),
    ],
)
def test_seconds(seconds: float, shown: str) -> None:
    assert show_seconds(seconds) == shown


@given(st.floats(0, 1e9))
def test_seconds_are_short(seconds: float) -> None:
    assert re.fullmatch(r"\d+(\.\d)?s|\d+[mhd]\d\d[smh]", show_seconds(seconds))
