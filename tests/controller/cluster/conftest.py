"""A ZooKeeper that the tests here share, and a cluster of fake brokers on it for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Iterator

import pytest
from tests.support.fakebrokers import FakeCluster
from tests.support.zookeeper import ZooKeeperProcess

_numbers = itertools.count()


@pytest.fixture(scope="session")
def zookeeper(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ZooKeeperProcess]:
    server = ZooKeeperProcess(tmp_path_factory.mktemp("zookeeper"))
    server.start()
    yield server
    server.kill()


@pytest.fixture
async def cluster(zookeeper: ZooKeeperProcess) -> AsyncIterator[FakeCluster]:
    """No brokers yet, and no controller."""
    opened = await FakeCluster.open(f"{zookeeper.address}/c{next(_numbers)}")
    yield opened
    await opened.close()
