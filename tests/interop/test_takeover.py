"""A live cluster of Apache Kafka's brokers is taken over by Ottla's, one after the other, and loses nothing."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from harness import maven
from harness.java import Unavailable
from tests.interop.mixed import MixedCluster
from tests.support.traffic import Stream, check_all_there, consume, create, produce
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[MixedCluster]:
    """Three brokers of Kafka's."""
    try:
        maven.kafka_jars()
    except Unavailable as lack:
        pytest.skip(str(lack))
    zookeeper = ZooKeeperProcess(tmp_path / "zookeeper")
    made = MixedCluster(tmp_path, zookeeper.start(), ("kafka", "kafka", "kafka"))
    try:
        yield made.start()
        assert not made.complaints()
    finally:
        made.kill()
        zookeeper.kill()


def values(count: int) -> list[str]:
    return [f"value-{number}" for number in range(count)]


def fill(cluster: MixedCluster) -> None:
    """A topic of several segments, which is not written to afterwards."""
    create(cluster, "quiet", partitions=3, configs={"segment.bytes": "20000"})
    for begin in range(0, 5000, 500):
        # A batch may not be larger than a segment.
        produce(cluster, "quiet", values(5000)[begin : begin + 500])


def partitions(cluster: MixedCluster) -> list[tuple[str, int]]:
    """Every partition of the cluster."""
    return [
        (topic, int(partition))
        for topic in cluster.zk.get_children("/brokers/topics")
        for partition in (cluster.node(f"/brokers/topics/{topic}") or {})["partitions"]
    ]


def replicas(cluster: MixedCluster, topic: str, partition: int) -> list[int]:
    found: list[int] = (cluster.node(f"/brokers/topics/{topic}") or {})["partitions"][str(partition)]
    return found


def test_brokers_are_replaced_by_others_with_new_numbers(cluster: MixedCluster) -> None:
    fill(cluster)
    create(cluster, "busy", configs={"min.insync.replicas": "2"})
    assert sorted(consume(cluster, "quiet", 5000, "readers")) == sorted(values(5000))
    before = {p: cluster.segments(replicas(cluster, "quiet", p)[0], "quiet", p) for p in range(3)}
    stream = Stream(cluster, "busy")
    for old in (1, 2, 3):
        stream.wait_for_more(50)
        new = old + 10
        cluster.add(new, "ottla")
        cluster.brokers[new].start()
        cluster.wait_complete()
        for topic, partition in partitions(cluster):
            moved = [new if each == old else each for each in replicas(cluster, topic, partition)]
            cluster.reassign(topic, moved, partition)
            cluster.lead(moved[0], topic, partition)
        stream.wait_for_more(50)
        assert cluster.brokers[old].stop(60) in (0, 143)
        del cluster.brokers[old]
        stream.wait_for_more(50)
    cluster.wait_complete()
    acked = stream.stop()
    assert set(cluster.brokers) == {11, 12, 13}
    assert cluster.controller() in cluster.brokers
    check_all_there(cluster, "busy", acked)
    cluster.wait_identical("busy")
    for partition, data in before.items():
        assert cluster.wait_identical("quiet", partition) == data
    # The group goes on where it was.
    produce(cluster, "quiet", ["last"])
    assert consume(cluster, "quiet", 1, "readers") == ["last"]


def test_brokers_are_replaced_on_their_own_folders(cluster: MixedCluster) -> None:
    """Stopped, and started again as Ottla with the same number, port and data; and one of them back again."""
    fill(cluster)
    create(cluster, "busy", configs={"min.insync.replicas": "2"})
    assert sorted(consume(cluster, "quiet", 5000, "readers")) == sorted(values(5000))
    before = {p: cluster.segments(1, "quiet", p) for p in range(3)}
    stream = Stream(cluster, "busy")
    for number, kind in ((1, "ottla"), (2, "ottla"), (3, "ottla"), (2, "kafka")):
        stream.wait_for_more(50)
        old = cluster.brokers[number]
        old.stop(60)
        wait_for(lambda: number not in cluster.state("busy")["isr"], "it to leave")  # noqa: B023
        cluster.add(number, kind, old.folder, old.port)
        cluster.brokers[number].start()
        cluster.wait_complete()
        for topic, partition in partitions(cluster):
            cluster.wait_isr(topic, {1, 2, 3}, partition)
        cluster.lead(number, "busy")
        stream.wait_for_more(50)
    acked = stream.stop()
    check_all_there(cluster, "busy", acked)
    cluster.wait_identical("busy")
    for partition, data in before.items():
        assert cluster.wait_identical("quiet", partition) == data
    produce(cluster, "quiet", ["last"])
    assert consume(cluster, "quiet", 1, "readers") == ["last"]
