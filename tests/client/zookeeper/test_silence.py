"""The connection to ZooKeeper, as kazoo reports it."""

from __future__ import annotations

import asyncio
import sys

import pytest
from kazoo.protocol.states import KazooState

from ottla_client.errors import ConfigurationError, ConnectError
from ottla_client.zookeeper_consumer.zookeeper import ZooKeeper


async def test_a_silent_zookeeper_may_have_ended_the_session() -> None:
    """Others may own the partitions when nothing was heard for the session's timeout."""
    zookeeper = ZooKeeper("127.0.0.1:1", 30, 30)
    zookeeper._loop = asyncio.get_running_loop()
    happened: list[str] = []
    lost = asyncio.Event()

    def on_lost() -> None:
        happened.append("lost")
        lost.set()

    zookeeper.on_lost = on_lost
    zookeeper.on_session = lambda: happened.append("session")
    zookeeper._become(KazooState.CONNECTED)
    zookeeper._become(KazooState.SUSPENDED)
    zookeeper._become(KazooState.CONNECTED)
    assert happened == ["session", "session"]
    zookeeper._become(KazooState.SUSPENDED)
    await asyncio.wait_for(lost.wait(), 60)
    zookeeper._become(KazooState.CONNECTED)
    assert happened == ["session", "session", "lost", "session"]
    zookeeper._become(KazooState.LOST)
    assert happened[-1] == "lost"


async def test_nothing_listens() -> None:
    with pytest.raises(ConnectError, match=r"no ZooKeeper answers at .* within"):
        await ZooKeeper("127.0.0.1:1", 1_000, 100).open()


def test_addresses_and_the_missing_package(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="zookeeper_connect is empty"):
        ZooKeeper(" ", 1_000, 1_000)
    monkeypatch.setitem(sys.modules, "kazoo.client", None)
    with pytest.raises(ConfigurationError, match=r"pip install 'ottla\[zookeeper\]'"):
        ZooKeeper("127.0.0.1:2181", 1_000, 1_000)
