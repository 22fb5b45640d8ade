"""Each test here breaks something; the broker and a bystander's connection must go on as if nothing was."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from tests.badinput.requests import fetch, produce, records
from tests.conftest import unique
from tests.support.processes import BrokerProcess
from tests.support.topics import create_topic
from tests.support.wire import Wire

from ottla_protocol.errors import ErrorCode


@pytest.fixture
def wire(broker: BrokerProcess) -> Iterator[Wire]:
    """A connection to break things on."""
    with Wire(broker.port) as connection:
        yield connection


@pytest.fixture(scope="session")
def _bystanders_topic(_shared_broker: BrokerProcess) -> str:
    name = unique("bystander")
    create_topic(_shared_broker, name)
    return name


@pytest.fixture(autouse=True)
def _the_others_go_on(broker: BrokerProcess, _bystanders_topic: str) -> Iterator[None]:
    """A connection from before the test writes and reads after it, and so does a new one."""
    with Wire(broker.port) as bystander:
        before, _ = produce(bystander, _bystanders_topic, records(b"before"))
        assert before == ErrorCode.NONE
        yield
        for connection in (bystander, Wire(broker.port)):
            with connection:
                error, offset = produce(connection, _bystanders_topic, records(b"after"))
                assert error == ErrorCode.NONE
                error, data = fetch(connection, _bystanders_topic, offset)
                assert error == ErrorCode.NONE
                assert b"after" in data
