"""A request that a network holds back reaches no later transaction, even if leaders and coordinators move meanwhile.

tests/clients/test_late_frames.py in a cluster: the coordinator or the leader that a scenario depends on moves, dies or
freezes before the request is held, while it is held, or after it has come. `make faults` runs all cases, `make interop`
those of Java's producers.
"""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest
from tests.support.late_cluster import CASES, QUICKEST, LateCluster, play
from tests.support.late_drivers import ConfluentDriver
from tests.support.zookeeper import ZooKeeperProcess

_ALL = bool(os.environ.get("OTTLA_FAULT_MINUTES"))


@pytest.fixture(scope="module")
def cluster(zookeeper: ZooKeeperProcess, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateCluster]:
    with LateCluster(tmp_path_factory.mktemp("late"), zookeeper) as made:
        yield made


@pytest.mark.parametrize(
    ("name", "move"),
    [case for case in CASES if _ALL or case in QUICKEST],
)
def test_late(name: str, move: str, cluster: LateCluster) -> None:
    play(name, move, cluster, ConfluentDriver)
