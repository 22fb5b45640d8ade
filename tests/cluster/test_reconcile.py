"""A frozen broker finds what was deleted meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.waiting import wait_for

from ottla_client import TopicPartition
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin

PARTITION = TopicPartition("t", 0)


def test_deletions_during_a_freeze_are_found(new_cluster: Callable[..., Cluster]) -> None:
    """While it is frozen, the move of a partition to it is cancelled, and a topic deleted."""
    cluster = new_cluster()
    if cluster.controller() == 3:
        cluster.brokers[3].stop(30)
        cluster.brokers[3].start()
        cluster.wait_complete()
    with Admin(f"{cluster.brokers[1].bootstrap},{cluster.brokers[2].bootstrap}") as admin:

        def create(name: str) -> None:
            admin.create_topics([NewTopic(name, assignment={0: (1,)})])
            cluster.wait_in_sync(name, 1)

        create("t")
        create("gone")
        cluster.freeze(3)
        admin.alter_partition_reassignments({PARTITION: [3]})
        wait_for(lambda: cluster.known_to(1) == {1, 2}, "broker 3 to be gone")
        admin.alter_partition_reassignments({PARTITION: None})
        admin.delete_topics(["gone"])
        cluster.thaw(3)
        cluster.wait_complete()
        wait_for(lambda: names(cluster, 3) == {"t"}, "broker 3 to know that a topic is gone")

        admin.delete_topics(["t"])
        wait_for(lambda: not any(names(cluster, number) for number in cluster.brokers), "no topic to be left")
        create("t")
        admin.alter_partition_reassignments({PARTITION: [3]})
        wait_for(lambda: replicas(cluster) == [3], "another topic of that name to move there")


def names(cluster: Cluster, number: int) -> set[str]:
    return {topic.name or "" for topic in cluster.metadata(number).topics}


def replicas(cluster: Cluster) -> list[int]:
    (partition,) = cluster.metadata(1, ["t"]).topics[0].partitions
    return list(partition.replica_nodes)
