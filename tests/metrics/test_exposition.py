"""The text format, read back by prometheus-client; timings and their quantiles."""

from __future__ import annotations

import math

from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families
from tests.support.metrics import parse

from ottla_broker.counters import RequestTimes, Timings, quantiles
from ottla_broker.metrics.exposition import Exposition
from ottla_broker.metrics.windows import WINDOW_SECONDS, Windows
from ottla_protocol.prometheus import labels

texts = st.text(st.characters(exclude_categories=("Cs",)), max_size=20)


@given(st.dictionaries(texts, st.floats(allow_nan=False), max_size=20), texts)
def test_any_label_and_value_is_read_back(values: dict[str, float], meaning: str) -> None:
    out = Exposition(100)
    family = out.gauge("a_metric", meaning)
    for label, value in values.items():
        family.add(value, labels(group=label))
    text = b"".join(out.chunks()).decode()
    found = parse_loosely(text)
    assert found == {(("group", label),): value for label, value in values.items()}


def parse_loosely(text: str) -> dict[tuple[tuple[str, str], ...], float]:
    return {
        tuple(sample.labels.items()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def test_samples_of_a_metric_stand_together_however_they_are_added() -> None:
    out = Exposition(10_000)
    one, two = out.gauge("one", "1"), out.counter("two_total", "2")
    for number in range(1200):
        one.add(number, labels(n=number))
        two.add(number, labels(n=number))
    assert out.gauge("one", "1") is one
    assert out.gauge("without_samples", "3").chunks() == []
    chunks = out.chunks()
    assert max(map(len, chunks)) < 40_000
    found = parse(b"".join(chunks).decode())
    assert len(found["one"]) == len(found["two_total"]) == 1200
    assert one.count == 1200


def test_details_are_bounded() -> None:
    out = Exposition(5)
    assert [out.room(2), out.room(2), out.room(2), out.room(1)] == [True, True, False, True]
    assert out.dropped == 2


@given(st.lists(st.floats(min_value=0, max_value=100), min_size=1, max_size=200), st.floats(0.01, 1))
def test_quantiles_are_within_a_bucket(durations: list[float], share: float) -> None:
    timings = Timings()
    for each in durations:
        timings.add(each)
    (found,) = quantiles(timings.buckets, [share])
    exact = sorted(durations)[max(0, math.ceil(share * len(durations) - 1e-9) - 1)]
    assert exact - 1e-6 <= found <= max(exact * 1.26, 2e-6)
    assert timings.count == len(durations)


def test_durations_that_no_clock_measures() -> None:
    timings = Timings()
    for each in (-1.0, 0.0, 1e9):
        timings.add(each)
    assert sum(timings.buckets) == 3
    assert quantiles([0] * 8, [0.5]) == [0.0]


def test_quantiles_forget_what_is_old() -> None:
    timings, windows = Timings(), Windows()
    timings.add(10.0)
    assert sum(windows.recent(timings, 0.0)) == 1
    assert sum(windows.recent(timings, WINDOW_SECONDS)) == 1
    timings.add(0.001)
    assert sum(windows.recent(timings, WINDOW_SECONDS + 1)) == 2
    assert sum(windows.recent(timings, 2 * WINDOW_SECONDS)) == 1
    assert sum(windows.recent(timings, 3 * WINDOW_SECONDS)) == 0
    out = Exposition(0)
    windows.add(out.summary("time_ms", "A time."), 'request="Produce"', [timings, timings], 181.0)
    found = parse(b"".join(out.chunks()).decode())
    assert found["time_ms_count"] == {(("request", "Produce"),): 4}
    assert found["time_ms"][("quantile", "0.99"), ("request", "Produce")] == 0


def test_requests_that_waited_and_those_that_did_not() -> None:
    times, windows = RequestTimes(), Windows()
    for _ in range(3):
        times.direct.add(0.001)
    # Read at 10, handled from 10.5 to 11.5, answered at 13.5.
    times.add(10.0, 10.5, 11.5, 13.5)
    # Handled as soon as it was read.
    times.add(0.0, 20.0, 20.25, 20.5)
    assert times.count == 5
    out = Exposition(0)
    windows.add(out.summary("total", "t"), "", [times.direct, times.total], 0.0)
    for part in ("queue", "local", "remote"):
        windows.add(out.summary(part, "t"), "", [getattr(times, part)], 0.0, zeros=[times.direct])
    found = parse(b"".join(out.chunks()).decode())

    def of(name: str, quantile: str) -> float:
        return found[name][(("quantile", quantile),)]

    assert found["total_sum"][()] == 3503 + 500
    assert [found[f"{part}_sum"][()] for part in ("queue", "local", "remote")] == [500, 1250, 2250]
    assert {found[f"{part}_count"][()] for part in ("total", "queue", "local", "remote")} == {5}
    assert of("queue", "0.50") == of("remote", "0.50") == 0
    assert 500 <= of("queue", "0.99") <= 500 * 1.26
    assert 250 <= of("remote", "0.75") <= 250 * 1.26
    assert 3500 <= of("total", "0.99") <= 3500 * 1.26
