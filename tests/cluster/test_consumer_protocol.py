"""A group of the consumer protocol in a cluster: configs reach every broker, and its coordinator dies."""

from __future__ import annotations

from collections.abc import Callable

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from tests.support.cluster import Cluster
from tests.support.traffic import create
from tests.support.waiting import wait_for

from ottla_client.sync import Admin, Consumer
from ottla_protocol.partitioning import partition_for

HEARTBEAT = "consumer.heartbeat.interval.ms"


def test_a_group_survives_its_coordinator(new_cluster: Callable[..., Cluster]) -> None:
    cluster = new_cluster(
        brokers=2,
        settings={
            "group.consumer.min.heartbeat.interval.ms": 100,
            "offsets.topic.num.partitions": 2,
            "offsets.topic.replication.factor": 2,
        },
    )
    create(cluster, "t", 4, 2)
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap})
    entry = ConfigEntry(HEARTBEAT, "200", incremental_operation=AlterConfigOpType.SET)
    group = ConfigResource(ResourceType.GROUP, "g", incremental_configs=[entry])
    admin.incremental_alter_configs([group])[group].result()
    for broker in cluster.brokers.values():
        # Each broker may coordinate the group.
        asked = ConfigResource(ResourceType.GROUP, "g")
        there = AdminClient({"bootstrap.servers": broker.bootstrap})

        def value(there: AdminClient = there, asked: ConfigResource = asked) -> str:
            return str(there.describe_configs([asked])[asked].result()[HEARTBEAT].value)

        wait_for(lambda value=value: value() == "200", "the group's config")
    options = {"bootstrap_servers": cluster.bootstrap, "group_id": "g", "group_protocol": "consumer"}
    with Consumer("t", **options) as one, Consumer("t", **options) as two:  # type: ignore[arg-type]

        def shared() -> bool:
            one.poll(20)
            two.poll(20)
            return len(one.assignment()) == len(two.assignment()) == 2

        wait_for(shared, "the partitions to be shared")
        before = (one.assignment(), two.assignment())
        with Admin(cluster.bootstrap) as tool:
            topics = tool.describe_topics(["__consumer_offsets"])
            leader = topics["__consumer_offsets"].partitions[partition_for("g", 2)].leader
        assert leader is not None
        cluster.brokers[leader].kill()
        other = next(each for number, each in cluster.brokers.items() if number != leader)

        survivor = AdminClient({"bootstrap.servers": other.bootstrap})

        def stable() -> bool:
            shared()
            try:
                found = survivor.describe_consumer_groups(["g"])["g"].result(10)
            except (KafkaException, TimeoutError):  # it may still ask the killed broker
                return False
            return found.state.name == "STABLE" and len(found.members) == 2

        wait_for(stable, "the group on its next coordinator")
        assert (one.assignment(), two.assignment()) == before
