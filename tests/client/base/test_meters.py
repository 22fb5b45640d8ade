"""What clients count: totals, rates and times over half a minute."""

from __future__ import annotations

import pytest

from ottla_client import meters
from ottla_client.meters import WINDOW_SECONDS, Meters


class Time:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def time(monkeypatch: pytest.MonkeyPatch) -> Time:
    made = Time()
    monkeypatch.setattr(meters, "monotonic", made)
    return made


def test_rates_are_those_of_the_last_half_minute(time: Time) -> None:
    made = Meters()
    for _ in range(60):
        time.now += 1
        made.add("records", 10)
        made.time("latency", 0.002, time.now)
    assert made.totals["records"] == 600
    assert made.rate("records") == pytest.approx(10, rel=0.1)
    assert made.average("latency") == pytest.approx(0.002)
    assert made.average("records", "latency-count") == pytest.approx(10)
    time.now += 100
    made.rate("records")
    time.now += 100
    assert made.rate("records") == 0
    assert made.average("latency") == 0
    assert len(made._samples) <= 8


def test_the_longest_time_is_forgotten(time: Time) -> None:
    made = Meters()
    assert made.most("latency") == 0
    made.time("latency", 5, time.now)
    made.time("latency", 1, time.now)
    time.now += WINDOW_SECONDS
    made.time("latency", 2, time.now)
    assert made.most("latency") == 5
    time.now += WINDOW_SECONDS
    assert made.most("latency") == 2
    time.now += 2 * WINDOW_SECONDS
    assert made.most("latency") == 0
