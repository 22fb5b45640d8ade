"""Handlers, through a real broker process with one raw connection a test, or on partitions in the test's loop."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from tests.support.log_dirs import KEEP, World
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire

from ottla_broker.background import Background
from ottla_broker.fetch.conversions import Conversions
from ottla_broker.log.files import Files


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture
async def world(tmp_path: Path) -> AsyncIterator[World]:
    background = Background(4)
    made = await World(tmp_path, background, KEEP, Files(64)).load()
    made.lead()
    yield made
    made.kill()
    background.close()


@pytest.fixture
async def conversions() -> AsyncIterator[Conversions]:
    made = Conversions()
    yield made
    made.close()
