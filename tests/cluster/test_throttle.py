"""Throttled moves: slow under the throttle, fast when it is raised, and no throttle left afterwards."""

from __future__ import annotations

from collections.abc import Callable

from tests.cli.ottla_command import Ottla
from tests.support.cluster import Cluster
from tests.support.traffic import consume, produce
from tests.support.waiting import wait_for

from ottla_client import TopicPartition
from ottla_client.admin import AlterConfig, ConfigResource, ConfigSource, NewTopic
from ottla_client.sync import Admin

RATES = ("leader.replication.throttled.rate", "follower.replication.throttled.rate")
MARKS = ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas")


def set_here(admin: Admin, resource: ConfigResource) -> dict[str, str | None]:
    """The throttle's settings."""
    found = admin.describe_configs([resource], keys=[*RATES, *MARKS])[resource]
    return {
        name: entry.value
        for name, entry in found.items()
        if entry.source in (ConfigSource.TOPIC, ConfigSource.DYNAMIC_BROKER)
    }


def test_a_throttled_move(new_cluster: Callable[..., Cluster]) -> None:
    # Small fetches, so that the rate counts.
    cluster = new_cluster(
        settings={"replica.fetch.response.max.bytes": 20_000, "replica.fetch.max.bytes": 20_000}
    )
    ottla = Ottla(cluster.bootstrap)
    values = [f"{number}".ljust(500) for number in range(1000)]
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("t", assignment={0: (1, 2)})])
        cluster.wait_in_sync("t", 2)
        for start in range(0, len(values), 50):
            produce(
                cluster, "t", values[start : start + 50]
            )  # a batch each: one is always fetched as a whole
        plan = ["cluster", "reassign", "--topic", "t", "--brokers", "3,2"]
        started = ottla.run(*plan, "--execute", "--throttle", "1000", "--no-wait")
        assert "have begun" in started.output
        assert set_here(admin, ConfigResource.topic("t")) == dict(zip(MARKS, ("0:1,0:2", "0:3"), strict=True))
        for number in (1, 2, 3):
            assert set_here(admin, ConfigResource.broker(number)) == dict.fromkeys(RATES, "1000")
        moving = TopicPartition("t", 0)
        log = cluster.brokers[3].folder / "t-0" / "00000000000000000000.log"
        wait_for(lambda: log.exists() and log.stat().st_size > 0, "something to be copied")
        # At this rate it would take minutes. In-sync replicas are not throttled.
        produce(cluster, "t", ["more"])
        assert moving in admin.list_partition_reassignments()
        assert log.stat().st_size < 400_000
        assert "still moving" in ottla.fails("cluster", "reassign", "--verify")
        for number in (1, 2, 3):
            admin.alter_configs(
                {ConfigResource.broker(number): [AlterConfig(name, 100_000_000) for name in RATES]}
            )
        wait_for(lambda: not admin.list_partition_reassignments(), "the move to end")
        assert "throttles removed" in ottla.run("cluster", "reassign", "--verify").output
        assert set_here(admin, ConfigResource.topic("t")) == {}
        for number in (1, 2, 3):
            assert set_here(admin, ConfigResource.broker(number)) == {}
        assert admin.describe_topics(["t"])["t"].partitions[0].replicas == (3, 2)
    assert sorted(consume(cluster, "t", 1001)) == sorted([*values, "more"])
