"""Configs of groups that are more than a number or a name."""

from __future__ import annotations

import pytest

from ottla_broker.config.group_configs import check_group_config, duration_ms


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("by_duration:PT1H", 3_600_000),
        ("by_duration:P1DT2M0.5S", 86_520_500),
        ("by_duration:pt1h", 3_600_000),
        ("BY_DURATION:PT1H", None),
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


def test_where_share_groups_start() -> None:
    for text in ("latest", "earliest", "by_duration:PT1H"):
        check_group_config("share.auto.offset.reset", text)
    for text in ("LATEST", "Earliest", "none", "by_duration", ""):
        with pytest.raises(ValueError, match="must be latest, earliest, or by_duration"):
            check_group_config("share.auto.offset.reset", text)
