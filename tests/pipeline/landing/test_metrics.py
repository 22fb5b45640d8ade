"""What a landing job serves at /metrics: its batches, how far it is behind, and what its server refuses."""

from __future__ import annotations

import logging
import re
import socket
import threading
from collections.abc import Callable
from contextlib import ExitStack, suppress
from dataclasses import replace
from pathlib import Path

import pytest
from tests.docs.pages import ROOT, text
from tests.pipeline.landing.rounds import Run, produce
from tests.support.metrics import Scraped, get
from tests.support.processes import BrokerProcess

from ottla_client.types import TopicPartition
from ottla_pipeline.landing.job_metrics import JobMetrics
from ottla_pipeline.landing.settings import BatchDone, Landing
from ottla_pipeline.metrics import lag, server
from ottla_pipeline.metrics.exposition import Exposition
from ottla_pipeline.metrics.lag import Behind, LagProbe
from ottla_pipeline.metrics.server import MetricsServer, served
from ottla_protocol.aio.http_server import HEAD_BYTES, MOST_OF_ADDRESS

PAGE = ROOT / "docs/pipeline-metrics.md"
P = TopicPartition("t", 0)


def scraped(address: tuple[str, int]) -> Scraped:
    status, found, headers = get(f"{address[0]}:{address[1]}", "/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    return Scraped(found)


def test_a_jobs_batches_and_its_lag(
    broker: BrokerProcess, new_topic: Callable[..., str], tmp_path: Path
) -> None:
    topic = new_topic(2, prefix="flights")
    table = str(tmp_path / "lake" / "flights")
    landing = Landing(
        broker.bootstrap,
        table,
        topics=(topic,),
        values="json",
        schema="n INT",
        dead_letters=f"table:{tmp_path}/dead",
    )
    produce(broker.bootstrap, topic, [{"n": 1}, b"?", {"n": 2}])
    probe = LagProbe(landing.bootstrap_servers, landing.client)
    metrics = JobMetrics(table, probe, wall=lambda: 1_700_000_000.0)
    with Run(landing) as job, served("0", metrics.render) as address:
        assert address is not None
        metrics.at(job.job_plan.offsets)
        found = scraped(address)
        assert found("ottla_landing_batches_total", table=table) == 0
        assert found("ottla_landing_last_commit_timestamp_seconds", table=table) is None
        at = {"table": table, "topic": topic, "partition": 0}
        assert found("ottla_landing_lag_records", **at) == 3
        assert 0 < (found("ottla_landing_lag_seconds", **at) or 0) < 3600
        done = job.batch()
        assert done is not None
        metrics.batch(done)
        metrics.restarted()
        produce(broker.bootstrap, topic, [b"x"] * 5, 1)
        found = scraped(address)
        for name, value in (
            ("batches_total", 1),
            ("rows_total", 2),
            ("bytes_total", done.bytes),
            ("files_total", done.files),
            ("dead_letters_total", 1),
            ("restarts_total", 1),
            ("last_commit_timestamp_seconds", 1_700_000_000),
            ("lag_known", 1),
        ):
            assert found(f"ottla_landing_{name}", table=table) == value, name
        commit = found("ottla_landing_step_seconds_sum", table=table, step="commit")
        assert commit == pytest.approx(done.durations["commit"], abs=1e-5)
        assert found("ottla_landing_step_seconds_count", table=table, step="commit") == 1
        assert found("ottla_landing_next_offset", **at) == 3
        assert found("ottla_landing_lag_records", **at) == found("ottla_landing_lag_seconds", **at) == 0
        assert found("ottla_landing_lag_records", **{**at, "partition": 1}) == 5
    probe.close()


def test_counts_stay_when_no_broker_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "_SECONDS", 0.05)
    probe = LagProbe("127.0.0.1:9", {})
    metrics = JobMetrics("t", probe)
    metrics.at({P: 7})
    found = Scraped(metrics.render().decode())
    assert found("ottla_landing_lag_known", table="t") == 0
    assert found("ottla_landing_next_offset", table="t", topic="t", partition=0) == 7
    assert "ottla_landing_lag_records" not in found.samples
    probe.close()


def test_a_topic_that_is_gone_has_no_lag(broker: BrokerProcess, new_topic: Callable[..., str]) -> None:
    there = TopicPartition(new_topic(), 0)
    probe = LagProbe(broker.bootstrap, {})
    try:
        assert probe.look({"job": {there: 0, P: 7}}) == {"job": {there: Behind(0, 0.0)}}
        assert probe.look({"job": {}}) == {"job": {}}
    finally:
        probe.close()


def test_every_name_is_on_the_page() -> None:
    metrics = JobMetrics("t", probe := LagProbe("127.0.0.1:9", {}))
    metrics.batch(BatchDone(0, 1, 1, 1, 0, {}, {"t": {0: 1}}, {}, 1.0, {"read": 1.0}))
    out = Exposition("ottla_landing_")
    out.positions({P: 1}, {P: Behind(1, 1.0)})
    probe.close()
    shown = set(re.findall(r"^# TYPE (\S+)", out.text().decode(), re.MULTILINE))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(probe, "look", lambda positions: {})
        shown |= set(re.findall(r"^# TYPE (\S+)", metrics.render().decode(), re.MULTILINE))
    assert set(re.findall(r"`(ottla_landing_\w+)`", text(PAGE))) == shown


# ---- the server


def answer(address: tuple[str, int], request: bytes) -> bytes:
    """What comes back until the server closes the connection, which it may do amid the request."""
    parts = []
    with socket.create_connection(address, 60) as client, suppress(OSError):
        client.sendall(request)
        client.shutdown(socket.SHUT_WR)
        while part := client.recv(65536):
            parts.append(part)
    return b"".join(parts)


def test_the_server_serves_one_page_and_refuses_the_rest(caplog: pytest.LogCaptureFixture) -> None:
    def fails() -> bytes:
        raise RuntimeError("a defect")

    with served("127.0.0.1:0", lambda: b"# text\n") as address:
        assert address is not None
        assert answer(address, b"GET /metrics?a=b HTTP/1.1\r\nHost: x\r\n\r\n").endswith(b"\r\n\r\n# text\n")
        head = answer(address, b"HEAD /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 200 OK\r\n")
        assert head.endswith(b"\r\n\r\n")
        assert answer(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 404 ")
        assert answer(address, b"POST /metrics HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 405 ")
        assert answer(address, b"nonsense") == b""
        assert answer(address, b"GET /" + b"x" * HEAD_BYTES * 3).startswith(b"HTTP/1.1 431 ")
    with served("0", fails) as address:
        assert address is not None
        assert answer(address, b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").startswith(b"HTTP/1.1 500 ")
    assert "a defect" in caplog.text


def test_scrapers_share_a_text_and_few_are_served() -> None:
    begun, go_on, texts = threading.Event(), threading.Event(), []

    def render() -> bytes:
        texts.append(1)
        begun.set()
        assert go_on.wait(60)
        return b"# text\n"

    one = MetricsServer(("127.0.0.1", 0), render)
    address = one.start()
    clients = []
    try:
        for _ in range(MOST_OF_ADDRESS):
            clients.append(socket.create_connection(address, 60))
            clients[-1].sendall(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n")
        assert begun.wait(60)
        with socket.create_connection(address, 60) as extra:
            assert extra.recv(1) == b"", "one too many is closed at once"
        go_on.set()
        for client in clients:
            assert client.recv(12) == b"HTTP/1.1 200"
        assert len(texts) < MOST_OF_ADDRESS, "a request that comes late may have a text of its own"
    finally:
        go_on.set()
        for client in clients:
            client.close()
        one.close()


def test_stalled_clients_do_not_hold_the_end() -> None:
    """Several, as some of them are accepted but not yet served when the server ends."""
    with ExitStack() as stack:
        with served("0", lambda: b"") as address:
            assert address is not None
            stalled = [stack.enter_context(socket.create_connection(address, 60)) for _ in range(10)]
            for client in stalled:
                client.sendall(b"GET ")
        for client in stalled:
            with suppress(ConnectionError):
                assert client.recv(1) == b""


def test_a_job_goes_on_without_metrics(caplog: pytest.LogCaptureFixture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        with served(str(taken.getsockname()[1]), lambda: b"") as address:
            assert address is None
        assert "no metrics are served" in caplog.text
    with served(None, lambda: b"") as address:
        assert address is None


def test_a_listener_for_others_is_a_warning(caplog: pytest.LogCaptureFixture) -> None:
    with served("0.0.0.0:0", lambda: b""):
        assert "anyone who reaches 0.0.0.0 port" in caplog.text
    caplog.clear()
    with caplog.at_level(logging.WARNING), served("[::1]:0", lambda: b""):
        assert "anyone" not in caplog.text


def test_a_listener_is_checked_with_the_settings(tmp_path: Path) -> None:
    landing = Landing("b:9092", str(tmp_path), topics=("t",))
    assert replace(landing, metrics_listener="9405").metrics_listener == "9405"
    assert (
        server.check_listener("b:99999") == "metrics_listener is 'b:99999': HOST:PORT, or a port of 127.0.0.1"
    )
