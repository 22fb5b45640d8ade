"""Moves between the data folders of a cluster's brokers (KIP-113), on leader and follower at once."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from tests.support.cluster import Cluster
from tests.support.traffic import consume, produce
from tests.support.waiting import wait_for
from tests.support.wire import Wire

from ottla_client.admin import NewTopic
from ottla_client.sync import Admin
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)


def alter(cluster: Cluster, number: int, topic: str, folder: Path) -> ErrorCode:
    """Ask one broker to move partition 0 of a topic."""
    topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(folder), topics=topics)])
    with Wire(cluster.brokers[number].port) as wire:
        answer = wire.call(request, 2)
    return ErrorCode(answer.results[0].partitions[0].error_code)


def test_leader_and_follower_move(new_cluster: Callable[..., Cluster], tmp_path: Path) -> None:
    def folders(port: int) -> list[Path]:
        return [tmp_path / f"{port}-{name}" for name in ("one", "two")]

    cluster = new_cluster(listeners=lambda port: {"log.dirs": ",".join(map(str, folders(port)))})
    there = {number: folders(broker.port)[1] for number, broker in cluster.brokers.items()}
    assert alter(cluster, 1, "t", there[1]) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("u", assignment={0: (1, 2)}), NewTopic("t", assignment={0: (1, 2)})])
    cluster.wait_in_sync("t", 2)
    assert (there[1] / "t-0").is_dir(), "created in the folder that was asked for before"
    cluster.wait_in_sync("u", 2)
    values = [f"{number}".ljust(200) for number in range(2000)]
    produce(cluster, "u", values[:1000])
    both = {number: folders(cluster.brokers[number].port) for number in (1, 2)}
    was = {number: next(each for each in both[number] if (each / "u-0").is_dir()) for number in both}
    to = {number: next(each for each in both[number] if each != was[number]) for number in both}
    for number in (1, 2):
        assert alter(cluster, number, "u", to[number]) is ErrorCode.NONE
    produce(cluster, "u", values[1000:])
    wait_for(lambda: all((to[number] / "u-0").is_dir() for number in (1, 2)), "the moves to end")
    assert not any((was[number] / "u-0").exists() for number in (1, 2))
    cluster.wait_in_sync("u", 2)
    assert sorted(consume(cluster, "u", 2000, group="one")) == sorted(values)
    cluster.brokers[1].kill()
    wait_for(lambda: cluster.leader("u") == 2, "the follower to lead")
    assert sorted(consume(cluster, "u", 2000, group="two")) == sorted(values)
    cluster.brokers[1].start()
    cluster.wait_in_sync("u", 2)
