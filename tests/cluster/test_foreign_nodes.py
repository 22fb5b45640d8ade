"""What others have written into ZooKeeper and no broker of this version can act on: a line tells of it, all go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from tests.support.cluster import Cluster
from tests.support.traffic import consume, create, produce
from tests.support.waiting import wait_for

from ottla_client.admin import AlterConfig, ConfigResource, ConfigSource
from ottla_client.sync import Admin

NewCluster = Callable[..., Cluster]


@pytest.fixture
def cluster(new_cluster: NewCluster) -> Cluster:
    return new_cluster(brokers=1, settings={"offsets.topic.replication.factor": 1})


@pytest.fixture
def zk(cluster: Cluster) -> Iterator[KazooClient]:
    client = KazooClient(cluster.connect)
    client.start()
    yield client
    client.stop()
    client.close()


def write(zk: KazooClient, entity: str, **settings: str) -> None:
    """What Kafka's tools do: the settings, and a notification."""
    zk.ensure_path(f"/config/{entity}")
    config = {name.replace("_", "."): value for name, value in settings.items()}
    zk.set(f"/config/{entity}", json.dumps({"version": 1, "config": config}).encode())
    notify(zk, json.dumps({"version": 2, "entity_path": entity}))


def notify(zk: KazooClient, text: str) -> None:
    zk.create("/config/changes/config_change_", text.encode(), sequence=True)


def told(cluster: Cluster, text: str) -> bool:
    return any(text in str(event.get("reason", "")) for event in cluster.brokers[1].events())


def shown(cluster: Cluster, resource: ConfigResource) -> dict[str, str | None]:
    """What is set for a resource itself."""
    own = ConfigSource.TOPIC if resource == TOPIC else ConfigSource.DYNAMIC_BROKER
    with Admin(cluster.bootstrap) as admin:
        entries = admin.describe_configs([resource])[resource]
        return {name: entry.value for name, entry in entries.items() if entry.source is own}


TOPIC = ConfigResource.topic("t")
BROKER = ConfigResource.broker(1)


def test_settings_that_cannot_come_into_force_are_passed_over(cluster: Cluster, zk: KazooClient) -> None:
    """As one runs, and at a start: a cluster that is older has configs of topics that Kafka knows no more."""
    create(cluster, "t", replicas=1)
    produce(cluster, "t", ["a"])
    write(zk, "topics/t", retention_ms="soon", no_such_config="1", max_message_bytes="54321")
    write(zk, "brokers/1", log_dirs="/nowhere", log_retention_bytes="many", log_retention_ms="7654321")
    wait_for(lambda: shown(cluster, BROKER) == {"log.retention.ms": "7654321"}, "what can be set")
    assert shown(cluster, TOPIC) == {"max.message.bytes": "54321"}
    broker = cluster.brokers[1]
    broker.kill()
    broker.start()
    cluster.wait_complete()
    assert consume(cluster, "t", 1) == ["a"]
    assert shown(cluster, BROKER) == {"log.retention.ms": "7654321"}
    assert shown(cluster, TOPIC) == {"max.message.bytes": "54321"}
    for fault in (
        "Invalid value soon for configuration retention.ms",
        "Unknown topic config name: no.such.config",
        "Cannot update these configs dynamically: log.dirs",
        "Invalid value many for configuration log.retention.bytes",
    ):
        assert told(cluster, fault), fault


def test_notifications_of_nothing_do_not_end_the_others(cluster: Cluster, zk: KazooClient) -> None:
    create(cluster, "t", replicas=1)
    zk.create("/config/changes/config_change_x", b"{}")
    for text in ("[1]", "7", "", '{"version": 2, "entity_path": "topics/../t"}'):
        notify(zk, text)
    write(zk, "users/ada", producer_byte_rate="1")
    write(zk, "topics/t", retention_ms="123456")
    wait_for(lambda: shown(cluster, TOPIC) == {"retention.ms": "123456"}, "the change")
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs({TOPIC: [AlterConfig("retention.ms", "5")]})
    assert shown(cluster, TOPIC) == {"retention.ms": "5"}
