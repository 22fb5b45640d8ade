"""Nodes in ZooKeeper that this version can't act on: brokers log them and go on."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator

import pytest
from kazoo.client import KazooClient
from tests.support.cluster import Cluster
from tests.support.traffic import consume, create, produce
from tests.support.waiting import wait_for

from ottla_client.admin import AlterConfig, ConfigResource, ConfigSource, NewTopic, ResourceType
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
    """Write settings and a notification, as Kafka's tools do."""
    zk.ensure_path(f"/config/{entity}")
    config = {name.replace("_", "."): value for name, value in settings.items()}
    zk.set(f"/config/{entity}", json.dumps({"version": 1, "config": config}).encode())
    notify(zk, json.dumps({"version": 2, "entity_path": entity}))


def notify(zk: KazooClient, text: str) -> None:
    zk.create("/config/changes/config_change_", text.encode(), sequence=True)


def reported(cluster: Cluster, text: str) -> bool:
    return any(text in str(event.get("reason", "")) for event in cluster.brokers[1].events())


def shown(cluster: Cluster, resource: ConfigResource) -> dict[str, str | None]:
    """A resource's own settings."""
    own = ConfigSource.TOPIC if resource == TOPIC else ConfigSource.DYNAMIC_BROKER
    with Admin(cluster.bootstrap) as admin:
        entries = admin.describe_configs([resource])[resource]
        return {name: entry.value for name, entry in entries.items() if entry.source is own}


TOPIC = ConfigResource.topic("t")
BROKER = ConfigResource.broker(1)


def test_invalid_settings_are_ignored(cluster: Cluster, zk: KazooClient) -> None:
    """While running and at start: an older cluster has topic configs that Kafka no longer has."""
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
        assert reported(cluster, fault), fault


def test_invalid_notifications_do_not_stop_later_ones(cluster: Cluster, zk: KazooClient) -> None:
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


def test_what_kafka_does_not_know_is_notified_of_elsewhere(cluster: Cluster, zk: KazooClient) -> None:
    """A Kafka broker logs an error for notifications of groups and client metrics; they are read there all the same."""
    own = {
        ConfigResource(ResourceType.GROUP, "g"): ("consumer.session.timeout.ms", ConfigSource.GROUP),
        ConfigResource(ResourceType.CLIENT_METRICS, "s"): ("interval.ms", ConfigSource.CLIENT_METRICS),
    }

    def values() -> list[str | None]:
        with Admin(cluster.bootstrap) as admin:
            found = admin.describe_configs(list(own))
        return [
            entry.value if (entry := found[resource][key]).source is source else None
            for resource, (key, source) in own.items()
        ]

    def changes(parent: str) -> int:
        return len(zk.get_children(parent))

    before = changes("/config/changes")
    with Admin(cluster.bootstrap) as admin:
        admin.alter_configs({resource: [AlterConfig(key, "50000")] for resource, (key, _) in own.items()})
    assert values() == ["50000", "50000"]
    assert (changes("/config/changes") - before, changes("/ottla/config_changes")) == (0, 2)
    # As a broker of another version writes them.
    write(zk, "groups/g", consumer_session_timeout_ms="51000")
    write(zk, "client-metrics/s", interval_ms="51000")
    wait_for(lambda: values() == ["51000", "51000"], "the changes")


def test_topics_that_cannot_be_read_stop_no_others(new_cluster: NewCluster) -> None:
    """Neither at once nor for the next controller."""
    cluster = new_cluster(brokers=2, settings={"offsets.topic.replication.factor": 1})
    zk = KazooClient(cluster.connect)
    zk.start()
    try:
        for number, partitions in enumerate(({"99999999999": [1]}, {"0": 5}, {"0": [2**40]})):
            node = json.dumps({"version": 3, "partitions": partitions}).encode()
            zk.create(f"/brokers/topics/bad-{number}", node)
        zk.create("/brokers/ids/99999999999", b"{}", ephemeral=True)
        create(cluster, "t", replicas=1)
        controller = json.loads(zk.get("/controller")[0])["brokerid"]
        cluster.brokers[controller].kill()
        other = 3 - controller
        wait_for(
            lambda: zk.exists("/controller") and json.loads(zk.get("/controller")[0])["brokerid"] == other,
            "the next controller",
        )
        with Admin(cluster.brokers[other].bootstrap) as admin:
            admin.create_topics([NewTopic("u", partitions=1, replication_factor=1)])
            wait_for(lambda: "u" in admin.list_topics(), "the topic")
    finally:
        zk.stop()
        zk.close()
