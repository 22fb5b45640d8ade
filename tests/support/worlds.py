"""Fixtures for :class:`World`, which stop it after the test."""

from __future__ import annotations

import io
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from pathlib import Path

import pytest
from tests.support.world import World

from ottla_broker import events


@pytest.fixture(autouse=True)
def events_log() -> Iterator[io.StringIO]:
    """The event log."""
    stream = io.StringIO()
    events.configure(stream=stream, json=True)
    yield stream
    events.configure()


@pytest.fixture
async def open_world(tmp_path: Path) -> AsyncIterator[Callable[..., Awaitable[World]]]:
    """Opens this test's world, or opens it again."""
    opened: list[World] = []

    async def make(**settings: str) -> World:
        world = await World.open(tmp_path, **settings)
        opened.append(world)
        return world

    yield make
    if opened and opened[-1].logs.folders:
        await opened[-1].close()


@pytest.fixture
async def world(open_world: Callable[..., Awaitable[World]]) -> World:
    return await open_world()
