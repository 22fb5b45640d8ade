"""Metrics and health of brokers in a cluster."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.metrics import LISTENER, Scraped, health, scrape
from tests.support.traffic import consume, create, produce
from tests.support.waiting import wait_for


def test_metrics_of_a_cluster(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(settings=LISTENER)
    create(cluster, "t", partitions=3)
    cluster.wait_in_sync("t", 3)
    produce(cluster, "t", [f"value-{i}" for i in range(50)])
    assert len(consume(cluster, "t", 50)) == 50

    def both() -> list[Scraped]:
        return [scrape(broker) for broker in cluster.brokers.values()]

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
        assert each("ottla_follower_lag_records_max", follower=other) is not None
        assert (each("kafka_network_requestmetrics_totaltimems_count", request="FetchFollower") or 0) > 0
    for broker in cluster.brokers.values():
        wait_for(lambda broker=broker: health(broker)[0] == 200, "a broker that is ready")
    controller = cluster.metadata(1).controller_id
    cluster.brokers[controller % 3 + 1].kill()
    remaining = cluster.brokers[controller]
    wait_for(
        lambda: (scrape(remaining)("kafka_server_replicamanager_underreplicatedpartitions") or 0) > 0,
        "partitions that lack a replica",
    )
