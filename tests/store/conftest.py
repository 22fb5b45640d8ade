"""Stores for the behaviour tests."""

from __future__ import annotations

import io
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.store.relay import Relay
from tests.support.zookeeper import ZooKeeperProcess

from ottla_broker import events
from ottla_broker.background import Background
from ottla_broker.store.api import Store
from ottla_broker.store.embedded import EmbeddedStore
from ottla_broker.store.zookeeper import ZooKeeperSettings, ZooKeeperStore

Open = Callable[..., Awaitable[ZooKeeperStore]]

_numbers = itertools.count()


@pytest.fixture(autouse=True)
def events_log() -> Iterator[io.StringIO]:
    """The log events of the test."""
    stream = io.StringIO()
    events.configure(stream=stream, json=True)
    yield stream
    events.configure()


@pytest.fixture
def background() -> Iterator[Background]:
    pool = Background(2)
    yield pool
    pool.close()


@pytest.fixture
def open_embedded(background: Background, tmp_path: Path) -> Callable[[], EmbeddedStore]:
    """Opens the embedded store of this test, again each time it is called."""
    return lambda: EmbeddedStore.open(tmp_path, background)


@pytest.fixture
def connect(zookeeper: ZooKeeperProcess) -> str:
    """A ``zookeeper.connect`` with nothing below its chroot."""
    return f"{zookeeper.address}/t{next(_numbers)}"


@pytest.fixture(params=["embedded", "zookeeper"])
async def store(request: pytest.FixtureRequest) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    opened: Store
    if request.param == "embedded":
        opened = request.getfixturevalue("open_embedded")()
    else:
        opened = await ZooKeeperStore.open(ZooKeeperSettings(request.getfixturevalue("connect")))
    yield opened
    await opened.close()


@pytest.fixture
async def open_store(connect: str) -> AsyncIterator[Open]:
    """Opens stores that are closed at the end."""
    opened: list[ZooKeeperStore] = []

    async def open_one(address: str = connect, **settings: Any) -> ZooKeeperStore:
        opened.append(await ZooKeeperStore.open(ZooKeeperSettings(address, **settings)))
        return opened[-1]

    yield open_one
    for store in opened:
        await store.close()


@pytest.fixture
async def relay(zookeeper: ZooKeeperProcess) -> AsyncIterator[Relay]:
    made = Relay(zookeeper.port)
    yield made
    await made.close()
