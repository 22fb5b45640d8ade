"""Texts as values, the way Spark reads them."""

from __future__ import annotations

import pytest

from ottla_pipeline.source import units
from ottla_pipeline.source.errors import OptionError


@pytest.mark.parametrize(
    ("text", "bytes"),
    [
        ("1", 1),
        ("1b", 1),
        ("2k", 2048),
        ("2KB", 2048),
        ("3m", 3 << 20),
        ("3MiB", 3 << 20),
        (" 1 g ", 1 << 30),
        ("1t", 1 << 40),
    ],
)
def test_sizes(text: str, bytes: int) -> None:
    assert units.size("x", text) == bytes


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("1500", 1.5),
        ("100ms", 0.1),
        ("30s", 30),
        ("15m", 900),
        ("15min", 900),
        ("2h", 7200),
        ("1d", 86400),
        ("5us", 0.000005),
        ("0", 0),
    ],
)
def test_times(text: str, seconds: float) -> None:
    assert units.seconds("x", text) == pytest.approx(seconds)


@pytest.mark.parametrize("text", ["", "0", "-1", "1.5m", "m", "1x", "0k"])
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(OptionError, match="x is "):
        units.size("x", text)


@pytest.mark.parametrize("text", ["", "-1", "1.5m", "m", "1x"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(OptionError, match="x is "):
        units.seconds("x", text)


def test_truth() -> None:
    assert units.truth("x", " True ")
    assert not units.truth("x", "FALSE")
    for text in ("1", "yes", ""):
        with pytest.raises(OptionError, match="true or false"):
            units.truth("x", text)
