"""A cluster of fake brokers for each test."""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator

import pytest
from tests.support.fakebrokers import FakeCluster
from tests.support.zookeeper import ZooKeeperProcess

_numbers = itertools.count()


@pytest.fixture
async def cluster(zookeeper: ZooKeeperProcess) -> AsyncIterator[FakeCluster]:
    """No brokers yet, and no controller."""
    opened = await FakeCluster.open(f"{zookeeper.address}/c{next(_numbers)}")
    yield opened
    await opened.close()
