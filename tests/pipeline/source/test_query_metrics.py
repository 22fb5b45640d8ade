"""What QueryMetrics makes of Spark's reports; tests/pipeline/source/test_spark.py has it in a session."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest
from tests.docs.pages import ROOT, text
from tests.pipeline.source.conftest import Put
from tests.support.metrics import Scraped, get

from ottla_pipeline.query_metrics import MOST_OBSERVED, MOST_QUERIES, QueryMetrics
from ottla_pipeline.source.errors import OptionError

Options = Callable[..., dict[str, str]]


def progress(ends: Any, *, id: str = "1", name: str | None = "q", rows: int = 3, **given: Any) -> Any:
    """A report as Spark makes it of a batch."""
    found = {
        "id": id,
        "name": name,
        "timestamp": "2023-11-14T22:13:20.000Z",
        "durationMs": {"addBatch": 500, "triggerExecution": 2000},
        "sources": [{"endOffset": ends, "numInputRows": rows}],
        **given,
    }
    return SimpleNamespace(progress=SimpleNamespace(name=name, json=json.dumps(found)))


def ended(id: str, exception: str | None = None) -> Any:
    return SimpleNamespace(id=id, exception=exception)


def test_a_query_with_its_lag(options: Options, new_topic: Callable[..., str], put: Put) -> None:
    topic = new_topic(2)
    put(topic, 5)
    put(topic, 4, partition=1, at=int((time.time() - 86_400) * 1000))
    with QueryMetrics(options(subscribe=topic), "127.0.0.1:0") as metrics:
        assert metrics.address is not None
        where = f"{metrics.address[0]}:{metrics.address[1]}"
        observed = {"rates": {"bytes": 17, "worst": 2.5, "name": "x", "flag": True}, "other": None}
        metrics.onQueryProgress(progress({topic: {"0": 3, "1": 1}}, observedMetrics=observed))
        metrics.onQueryProgress(progress({topic: {"0": 5, "1": 1}}, rows=2))
        metrics.onQueryProgress(progress({"another": {"0": 5}}, name="not ours"))
        # A report without a batch.
        metrics.onQueryProgress(progress({topic: {"0": 5, "1": 1}}, rows=0, durationMs={"latestOffset": 1}))
        found = Scraped(get(where, "/metrics")[1])
        assert "not ours" not in str(found.samples)
        for name, value in (
            ("active", 1),
            ("failures_total", 0),
            ("batches_total", 2),
            ("rows_total", 5),
            ("last_commit_timestamp_seconds", 1_700_000_002),
            ("lag_known", 1),
        ):
            assert found(f"ottla_query_{name}", query="q") == value, name
        assert found("ottla_query_step_seconds_sum", query="q", step="addBatch") == 1
        assert found("ottla_query_step_seconds_count", query="q", step="triggerExecution") == 2
        at = {"query": "q", "topic": topic}
        assert found("ottla_query_next_offset", **at, partition=0) == 5
        assert found("ottla_query_lag_records", **at, partition=0) == 0
        assert found("ottla_query_lag_seconds", **at, partition=0) == 0
        assert found("ottla_query_lag_records", **at, partition=1) == 3
        # The next record there was written a day ago, less a second.
        assert 86_398 < (found("ottla_query_lag_seconds", **at, partition=1) or 0) < 90_000
        assert "ottla_query_observed" not in found.samples, "the last batch observed nothing"
        metrics.onQueryProgress(progress({topic: {"0": 5, "1": 1}}, observedMetrics=observed))
        metrics.onQueryTerminated(ended("1", "it failed"))
        metrics.onQueryTerminated(ended("another"))
        found = Scraped(metrics.render().decode())
        assert found("ottla_query_observed", query="q", observation="rates", column="bytes") == 17
        assert len(found.samples["ottla_query_observed"]) == 2
        assert found("ottla_query_active", query="q") == 0
        assert found("ottla_query_failures_total", query="q") == 1
        shown = set(re.findall(r"^# TYPE (\S+)", metrics.render().decode(), re.MULTILINE))
        assert set(re.findall(r"`(ottla_query_\w+)`", text(ROOT / "docs/pipeline-metrics.md"))) == shown


def test_what_is_remembered_is_bounded(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = QueryMetrics(options(subscribePattern="t.*"), "0")
    monkeypatch.setattr(metrics._probe, "look", lambda positions: {})
    for number in range(MOST_QUERIES):
        metrics.onQueryProgress(progress({"t": {"0": 1}}, id=str(number), name=None))
    metrics.onQueryTerminated(ended("7"))
    many = {"o": {str(column): 1 for column in range(2 * MOST_OBSERVED)}}
    metrics.onQueryProgress(progress({"t": {"0": 1}}, id="new", name=None, observedMetrics=many))
    found = Scraped(metrics.render().decode())
    active = found.samples["ottla_query_active"]
    assert len(active) == MOST_QUERIES
    assert (("query", "7"),) not in active, "the one that has ended"
    assert len(found.samples["ottla_query_observed"]) == MOST_OBSERVED
    # A query of the same name on another checkpoint begins with nothing.
    metrics.onQueryProgress(progress({"t": {"0": 9}}, id="1", name="same"))
    metrics.onQueryProgress(progress({"t": {"1": 9}}, id="2", name="same"))
    found = Scraped(metrics.render().decode())
    assert found("ottla_query_next_offset", query="same", topic="t", partition=1) == 9
    assert found("ottla_query_next_offset", query="same", topic="t", partition=0) is None


def test_a_named_query_alone(options: Options, monkeypatch: pytest.MonkeyPatch) -> None:
    metrics = QueryMetrics(options(subscribe="t"), "0", query="mine")
    monkeypatch.setattr(metrics._probe, "look", lambda positions: {})
    metrics.onQueryProgress(progress({"t": {"0": 1}}, name="other"))
    metrics.onQueryProgress(progress({"t": {"0": 1}}, name="mine"))
    found = Scraped(metrics.render().decode())
    assert found.samples["ottla_query_active"] == {(("query", "mine"),): 1}


def test_a_listener_that_is_no_address(options: Options) -> None:
    with pytest.raises(OptionError, match=r"HOST:PORT, or a port of 127\.0\.0\.1"):
        QueryMetrics(options(subscribe="t"), "everywhere")
