"""Clusters for each test, all on one ZooKeeper."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.support.cluster import Cluster
from tests.support.zookeeper import ZooKeeperProcess


@pytest.fixture
def new_cluster(zookeeper: ZooKeeperProcess, tmp_path: Path) -> Iterator[Callable[..., Cluster]]:
    """Makes and starts clusters: ``new_cluster(brokers=3, settings={...}, racks=[...])``."""
    made: list[Cluster] = []

    def make(**options: Any) -> Cluster:
        cluster = Cluster(tmp_path / f"cluster-{len(made)}", options.pop("zookeeper", zookeeper), **options)
        (tmp_path / f"cluster-{len(made)}").mkdir()
        made.append(cluster)
        return cluster.start()

    yield make
    complaints = []
    for cluster in made:
        cluster.kill()
        complaints += cluster.complaints()
    assert not complaints
