"""Stores to hold the behaviour tests against."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from ottla_broker import events
from ottla_broker.background import Background
from ottla_broker.store.api import Store
from ottla_broker.store.embedded import EmbeddedStore


@pytest.fixture(autouse=True)
def events_log() -> Iterator[io.StringIO]:
    """What the broker's code logs meanwhile."""
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


@pytest.fixture(params=["embedded"])
async def store(
    request: pytest.FixtureRequest, open_embedded: Callable[[], EmbeddedStore]
) -> AsyncIterator[Store]:
    """An empty store of each kind."""
    opened: Store = open_embedded()
    yield opened
    await opened.close()
