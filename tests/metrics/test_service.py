"""A broker that serves metrics: one is scraped; ports that are taken, and what is served while it starts."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from harness.ports import free_port
from tests.badinput.requests import fetch, now_ms, produce, records
from tests.badinput.test_groups import commit, stable
from tests.metrics.promql import metrics_in
from tests.metrics.test_rules import expressions
from tests.support.clock import FakeClock
from tests.support.metrics import LISTENER, address_of, get, health, scrape
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.wire import Wire, request_bytes

from ottla_broker.metrics.service import MetricsService
from ottla_broker.network.acceptor import open_listener
from ottla_protocol.messages.api_versions import ApiVersionsRequest

pytestmark = pytest.mark.ottla_only

ELSEWHERE = {
    "kafka_server_sessionexpirelistener_zookeeperexpires_total",
    "kafka_server_socket_server_metrics_failed_authentication_total",
    "ottla_follower_lag_records_max",
    "ottla_group_catch_up_seconds",
    "ottla_group_lag_seconds_max",
    "ottla_lag_history_failures_total",
    "ottla_share_group_dropped_records_total",
    "ottla_zookeeper_connected",
    "up",
}
"""``up`` is Prometheus's own; time to catch up needs two scrapes (test_lag.py), the history of lag a minute
(test_lag_history.py), authentications a login (tests/security), dropped records a share group (test_doctor.py);
tests/cluster sees the others."""


def test_a_broker_is_scraped(own_broker: Callable[..., BrokerProcess]) -> None:
    broker = own_broker(settings=LISTENER)
    create_topic(broker, "t", 2)
    with Wire(broker.port) as wire:
        for _ in range(3):
            assert produce(wire, "t", records(b"a" * 10_000, b"b"))[0] == 0
        assert produce(wire, "t", records(b"x" * 2_000_000))[0] != 0
        _, data = fetch(wire, "t", 0)
        # The second is read with the first, so it waits for it.
        wire.send(2 * request_bytes(ApiVersionsRequest(), 0))
        for _ in range(2):
            wire.receive()
        stable(wire, "a group")
        hour_ago = now_ms() - 3_600_000
        assert produce(wire, "t", records(b"c", timestamp=hour_ago), partition=1)[0] == 0
        assert commit(wire, "readers", "t", partition_index=0, committed_offset=6) == 0
        assert commit(wire, "readers", "t", partition_index=1, committed_offset=0) == 0
    found = scrape(broker)
    topic = "kafka_server_brokertopicmetrics_"
    assert found(f"{topic}messagesin_total", topic="t") == 7
    assert (found(f"{topic}messagesin_total") or 0) >= 7
    assert (found(f"{topic}bytesin_total", topic="t") or 0) > len(data)
    assert found(f"{topic}bytesout_total", topic="t") == len(data)
    assert (found(f"{topic}bytesrejected_total", topic="t") or 0) > 2_000_000
    assert found(f"{topic}totalproducerequests_total", topic="t") == 5
    assert found(f"{topic}failedproducerequests_total", topic="t") == 0
    assert found(f"{topic}totalfetchrequests_total", topic="t") == 1
    assert found("kafka_network_requestmetrics_totaltimems_count", request="Produce") == 5
    assert found("kafka_network_requestmetrics_totaltimems_count", request="Fetch") == 1
    assert found("kafka_network_requestmetrics_totaltimems_count", request="FetchConsumer") == 1
    assert found("kafka_network_requestmetrics_totaltimems_count", request="FetchFollower") == 0
    assert (found("kafka_network_requestmetrics_totaltimems", request="Produce", quantile="0.99") or 0) > 0
    for part in ("requestqueue", "local", "remote"):
        assert found(f"kafka_network_requestmetrics_{part}timems_count", request="Produce") == 5
    assert (found("kafka_network_requestmetrics_localtimems_sum", request="Produce") or 0) > 0
    assert found("kafka_network_requestmetrics_remotetimems_sum", request="ApiVersions") == 0
    assert (found("kafka_network_requestmetrics_requestqueuetimems_sum", request="ApiVersions") or 0) > 0
    assert found("kafka_log_log_logendoffset", topic="t", partition=0) == 6
    lag = "kafka_consumergroup_lag"
    assert found(lag, consumergroup="readers", topic="t", partition=0) == 0
    assert found(lag, consumergroup="readers", topic="t", partition=1) == 1
    assert found("kafka_consumergroup_lag_sum", consumergroup="readers") == 1
    assert found("ottla_group_lag_seconds", group="readers", topic="t", partition=0) == 0
    assert 3600 <= (found("ottla_group_lag_seconds", group="readers", topic="t", partition=1) or 0) < 7200
    assert (found("ottla_group_commit_age_seconds", group="readers") or -1) >= 0
    assert found("ottla_group_lag_unknown_partitions") == 0
    assert found("kafka_server_replicamanager_leadercount") == found(
        "kafka_server_replicamanager_partitioncount"
    )
    assert found("kafka_controller_kafkacontroller_activecontrollercount") == 1
    assert found("kafka_coordinator_group_groupmetadatamanager_numgroupsstable") == 1
    assert found("ottla_group_members", group="a group") == 1
    sent = sum(found.samples["kafka_server_socket_server_metrics_outgoing_byte_total"].values())
    assert sent > sum(found.samples["ottla_sendfile_bytes_total"].values()) == len(data)
    assert (found("process_resident_memory_bytes") or 0) > 10_000_000
    assert abs((found("process_start_time_seconds") or 0) - time.time()) < 600
    assert (found("ottla_store_write_seconds_count") or 0) > 0
    assert found("kafka_server_replicafetchermanager_maxlag", clientId="Replica") == 0
    assert found("kafka_controller_controllerstats_leaderelectionrateandtimems_count") == 0
    purgatory = "kafka_server_delayedoperationpurgatory_purgatorysize"
    waiting = {each: found(purgatory, delayedOperation=each) for each in ("Fetch", "Produce", "Heartbeat")}
    assert waiting == {"Fetch": 0, "Produce": 0, "Heartbeat": 1}
    assert found("ottla_metrics_dropped_series") == 0
    assert health(broker) == (200, {"status": "ready", "problems": []})
    wanted = {name for expression in expressions() for name in metrics_in(expression)}
    assert wanted - found.samples.keys() == ELSEWHERE
    # A broker whose port is taken starts all the same.
    second = own_broker(settings={"metrics.listener": address_of(broker)})
    assert any(each["event"] == "no metrics are served; the broker tries again" for each in second.events())


class Counted:
    """A service whose only collector counts how often it runs."""

    def __init__(self, clock: FakeClock, port: int) -> None:
        self.service = MetricsService("127.0.0.1", port, 10, clock)
        self.runs = 0

    def collect(self, out: Any) -> Iterator[None]:
        self.runs += 1
        out.gauge("runs", "How often.").add(self.runs)
        yield
        yield

    async def page(self, path: str) -> tuple[int, str]:
        assert self.service.address is not None
        host, port = self.service.address
        found = await asyncio.to_thread(get, f"{host}:{port}", path)
        return found[0], found[1]


async def test_a_port_that_is_taken_is_tried_again() -> None:
    taken = open_listener("127.0.0.1", free_port(), 1)
    clock = FakeClock()
    made = Counted(clock, taken.getsockname()[1])
    await made.service.start()
    try:
        assert made.service.address is None
        await clock.elapse(11)
        assert made.service.address is None
        taken.close()
        await clock.elapse(11)
        assert made.service.address is not None
        assert (await made.page("/health/live"))[0] == 200
        status, text = await made.page("/health/ready")
        assert (status, json.loads(text)["problems"][0]["check"]) == (503, "started")
        assert (await made.page("/metrics"))[0] == 503
    finally:
        taken.close()
        await made.service.close()


async def test_a_collector_that_fails_leaves_the_others() -> None:
    made = Counted(FakeClock(), 0)

    def failing(out: Any) -> Iterator[None]:
        out.gauge("before", "Before.").add(1)
        yield
        raise RuntimeError("a defect")

    made.service._collectors = (failing, made.collect)
    text = b"".join(await made.service.render()).decode()
    assert "before 1\n" in text
    assert "runs 1\n" in text
    made.service._sources = SimpleNamespace()  # type: ignore[assignment]
    made.service.stopping()
    await made.service.start()
    status, text = await made.page("/health/ready")
    assert (status, json.loads(text)["problems"][0]["check"]) == (503, "stopping")
    await made.service.close()
    gc.collect()


async def test_scrapers_that_come_together_share_a_text() -> None:
    clock = FakeClock()
    made = Counted(clock, 0)

    def slow(out: Any) -> Iterator[None]:
        clock.advance(0.1)
        yield

    made.service._collectors = (made.collect, slow)
    made.service._sources = SimpleNamespace()  # type: ignore[assignment]
    pages = await asyncio.gather(*(made.service._metrics() for _ in range(5)))
    assert made.runs == 1
    assert len({b"".join(page.body) for page in pages}) == 1
    # The next text is made after a rest, for those that came meanwhile.
    later = [asyncio.ensure_future(made.service._metrics()) for _ in range(5)]
    await clock.elapse(0.2)
    assert made.runs == 1
    await clock.elapse(0.2)
    await asyncio.gather(*later)
    assert made.runs == 2
