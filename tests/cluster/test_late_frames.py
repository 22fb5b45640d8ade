"""A request that a network holds back reaches no later transaction, even if leaders and coordinators move meanwhile.

tests/clients/test_late_frames.py in a cluster: while the request is held, another broker leads everything for a while,
and then the first one again. That broker still has the connection of the held request open.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from tests.support import late_scenarios as late
from tests.support.late_cluster import LateCluster, MovingNetwork
from tests.support.zookeeper import ZooKeeperProcess


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateCluster]:
    made = LateCluster(tmp_path_factory.mktemp("late"), zookeeper)
    try:
        made.start()
        yield made
        assert not made.cluster.complaints()
    finally:
        made.close()


CASES: list[tuple[Callable[[late.Driver, late.Network], None], list[str]]] = [
    (late.late_commit, ["a", "c"]),
    (late.late_abort, ["b", "c"]),
    (late.late_records, ["b"]),
]


@pytest.mark.parametrize(("case", "right"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_late(
    case: Callable[[late.Driver, late.Network], None], right: list[str], cluster: LateCluster
) -> None:
    topic = case.__name__
    cluster.create(topic)
    producer = late.ConfluentDriver(cluster.address, topic)
    case(producer, MovingNetwork(cluster))
    producer.close()
    assert late.read_committed(cluster.cluster.bootstrap, topic) == right


def test_late_offsets(cluster: LateCluster) -> None:
    topic = "late_offsets"
    cluster.create(topic)
    producer = late.ConfluentDriver(cluster.address, topic)
    late.late_offsets(producer, MovingNetwork(cluster))
    producer.close()
    assert late.committed_offset(cluster.cluster.bootstrap, topic) == 2
