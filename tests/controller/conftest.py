"""Fixtures of the controller's tests."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from tests.support.worlds import events_log, open_world, world

from ottla_broker.background import Background
from ottla_broker.store.embedded import EmbeddedStore

__all__ = ["events_log", "open_world", "world"]


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[EmbeddedStore]:
    background = Background(1)
    opened = EmbeddedStore.open([tmp_path], background)
    yield opened
    await opened.close()
    background.close()
