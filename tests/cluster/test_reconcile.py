"""A broker that was frozen until the others had done without it: what it hears of what went meanwhile."""

from __future__ import annotations

from collections.abc import Callable

from tests.support.cluster import Cluster
from tests.support.waiting import wait_for

from ottla_client import TopicPartition
from ottla_client.admin import NewTopic
from ottla_client.sync import Admin

PARTITION = TopicPartition("t", 0)


def test_what_went_while_it_was_frozen(new_cluster: Callable[..., Cluster]) -> None:
    """It is told to follow a partition; the move is stopped, and the topic deleted, when nobody can tell it."""
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
