"""The batch reader as Spark calls it, on a cluster: the leader is killed amid a read; followers that are read from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client.admin import NewTopic
from ottla_client.cluster import Cluster as ClientsCluster
from ottla_client.sync import Admin, Producer
from ottla_pipeline.source.batch import OttlaReader
from ottla_pipeline.source.options import resolve

RECORDS = 200_000


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """Two brokers in two racks, each of them a replica of everything."""
    settings = {"replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector"}
    made = Cluster(tmp_path_factory.mktemp("brokers"), zookeeper, 2, settings, racks=("a", "b"))
    try:
        yield made.start()
    finally:
        made.kill()


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    """Many records, of which several fetches are needed, in one partition on both brokers."""
    with Admin(cluster.bootstrap) as admin:
        admin.create_topics([NewTopic("many", assignment={0: [1, 2]})])
    with Producer(cluster.bootstrap) as producer:
        values = [b"%0100d" % number for number in range(RECORDS)]
        producer.send_batch("many", values, partition=0).result()
    cluster.wait_in_sync("many", 2)
    return "many"


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The brokers that have been fetched from."""
    nodes: list[int] = []
    dedicated = ClientsCluster.dedicated

    def noting(self: ClientsCluster, node: int, *rest: Any) -> Any:
        nodes.append(node)
        return dedicated(self, node, *rest)

    monkeypatch.setattr(ClientsCluster, "dedicated", noting)
    return nodes


def offsets(cluster: Cluster, topic: str, **more: str) -> Iterator[list[int]]:
    """Offsets as they are read, a list a record batch."""
    given = {"kafka.bootstrap.servers": cluster.bootstrap, "subscribe": topic, "segments": "never"}
    given["kafka.fetch.max.bytes"] = "1000000"
    options = resolve(
        {**given, **{name.replace("__", "."): value for name, value in more.items()}}, stream=False
    )
    reader = OttlaReader(options, ("offset", "value"))
    for task in reader.partitions():
        for batch in reader.read(task):
            found = batch.column("offset").to_pylist()
            assert batch.column("value").to_pylist() == [b"%0100d" % offset for offset in found]
            yield found


def test_a_reader_in_a_followers_rack_reads_from_it(cluster: Cluster, topic: str, asked: list[int]) -> None:
    assert [each for found in offsets(cluster, topic) for each in found] == list(range(RECORDS))
    assert set(asked) == {1}
    asked.clear()
    read = [each for found in offsets(cluster, topic, kafka__client__rack="b") for each in found]
    assert read == list(range(RECORDS))
    assert asked[0] == 1, "the leader says whom to ask"
    assert set(asked[2:]) == {2}


def test_a_leader_is_killed_amid_a_read(cluster: Cluster, topic: str, asked: list[int]) -> None:
    """What is left comes from the one that leads then; every record is there once, and in order."""
    running = offsets(cluster, topic)
    read = next(running)
    assert len(read) < RECORDS
    cluster.brokers[1].kill()
    for found in running:
        read += found
    assert read == list(range(RECORDS))
    assert asked[-1] == 2
    wait_for(lambda: cluster.leader(topic) == 2, "the other broker to lead")
