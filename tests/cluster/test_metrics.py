"""Metrics and health of brokers in a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from tests.badinput.requests import produce_request, records
from tests.cli.ottla_command import Ottla
from tests.support.cluster import Cluster
from tests.support.metrics import LISTENER, Scraped, health, scrape
from tests.support.traffic import consume, create, produce
from tests.support.waiting import wait_for
from tests.support.wire import Wire, request_bytes

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import ErrorCode
from ottla_protocol.header import parse_response_header
from ottla_protocol.messages.produce import ProduceResponse
from ottla_protocol.partitioning import LAG_TOPIC, partition_for


def test_metrics_of_a_cluster(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(
        settings={**LISTENER, "ottla.lag.history.enable": "true", "ottla.lag.history.interval.ms": 1000}
    )
    create(cluster, "t", partitions=3)
    cluster.wait_in_sync("t", 3)
    produce(cluster, "t", [f"value-{i}" for i in range(50)])
    assert len(consume(cluster, "t", 50)) == 50

    def both() -> list[Scraped]:
        return [scrape(broker) for broker in cluster.brokers.values()]

    def follows(scraped: Scraped) -> bool:
        return bool(scraped("kafka_network_requestmetrics_totaltimems_count", request="FetchFollower"))

    # A follower's first fetch of a leader may still wait for records.
    wait_for(lambda: all(map(follows, both())), "an answered fetch of followers of each broker")
    scraped = both()
    assert sum(each("kafka_controller_kafkacontroller_activecontrollercount") or 0 for each in scraped) == 1
    assert (
        sum(each("kafka_server_brokertopicmetrics_messagesin_total", topic="t") or 0 for each in scraped)
        == 50
    )
    assert sum(each("kafka_server_brokertopicmetrics_replicationbytesin_total") or 0 for each in scraped) > 0
    assert sum(each("kafka_server_brokertopicmetrics_replicationbytesout_total") or 0 for each in scraped) > 0
    assert max(each("kafka_controller_kafkacontroller_activebrokercount") or 0 for each in scraped) == 3
    for number, each in zip(cluster.brokers, scraped, strict=True):
        other = number % 3 + 1
        assert each("ottla_zookeeper_connected") == 1
        assert each("kafka_server_sessionexpirelistener_zookeeperexpires_total") == 0
        assert (each("kafka_server_zookeeperclientmetrics_zookeeperrequestlatencyms_sum") or 0) > 0
        assert each("ottla_follower_lag_records_max", follower=other) is not None
    for broker in cluster.brokers.values():
        wait_for(lambda broker=broker: health(broker)[0] == 200, "a broker that is ready")
    controller = cluster.metadata(1).controller_id
    victim = controller % 3 + 1
    ottla = Ottla(cluster.brokers[controller].bootstrap)
    to_start = ("--topic", "t:0", "--to-offset", "0", "--execute")
    ottla("groups", "reset-offsets", "any", *to_start)
    group = next(
        f"group-{number}"
        for number in range(1000)
        if cluster.leader("__consumer_offsets", partition_for(f"group-{number}", 5)) == victim
    )
    ottla("groups", "reset-offsets", group, *to_start)

    def history() -> list[dict[str, Any]]:
        samples: list[dict[str, Any]] = ottla.json("groups", "lag", group, "--history")["samples"]
        return samples

    wait_for(history, "a sample of the coordinator", every=0.3)
    cluster.brokers[victim].kill()
    killed_ms = time.time_ns() // 1_000_000
    remaining = cluster.brokers[controller]
    wait_for(
        lambda: (scrape(remaining)("kafka_server_replicamanager_underreplicatedpartitions") or 0) > 0,
        "partitions that lack a replica",
    )
    after = scrape(remaining)
    assert (after("kafka_controller_controllerstats_leaderelectionrateandtimems_count") or 0) > 0
    assert after("kafka_server_replicafetchermanager_maxlag", clientId="Replica") is not None
    # The next coordinator goes on in the same history.
    wait_for(
        lambda: any(each["time_ms"] > killed_ms for each in history()),
        "a sample of the next coordinator",
        every=0.3,
    )
    samples = history()
    for broker in cluster.brokers.values():
        # Leaders take samples from other brokers, but not from clients.
        assert "is written by brokers only" not in broker.log()
    assert _written(cluster, "anyone") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert _written(cluster, "broker-1") == 0
    assert samples[0]["time_ms"] < killed_ms
    assert len({each["lag_records"] for each in samples}) == 1


def _written(cluster: Cluster, client_id: str) -> int:
    """The error of a record for the history of lag, sent to the listener of the brokers."""
    leader = cluster.brokers[cluster.leader(LAG_TOPIC)]
    with Wire(leader.port) as wire:
        wire.send(
            request_bytes(produce_request(LAG_TOPIC, bytes(records(b"v")), acks=1), 9, client_id=client_id)
        )
        data = wire.receive()
    _, position = parse_response_header(data, ApiKey.PRODUCE, 9)
    return ProduceResponse.decode(data, 9, position).responses[0].partition_responses[0].error_code
