"""Handlers through a real broker process, one raw connection a test."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.support.processes import BrokerProcess
from tests.support.wire import Wire


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    with Wire(broker.port) as connection:
        yield connection
