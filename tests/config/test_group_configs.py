"""Configs of groups that are more than a number or a name."""

from __future__ import annotations

import pytest

from ottla_broker.config.group_configs import duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2M0.5S", 86_520_500),
        ("by_duration:P", None),
        ("by_duration:PT", None),
        ("by_duration:-PT1H", None),
        ("PT1H", None),
        (f"by_duration:P{'9' * 400}D", None),
        ("by_duration:P106751991168D", None),
    ],
)
def test_durations(text: str, expected: int | None) -> None:
    assert duration_ms(text) == expected
