"""The way from a frame to its handler and back, without a connection."""

from __future__ import annotations

import asyncio

from tests.support.clock import FakeClock
from tests.support.handlers import Client, services
from tests.support.wire import request_bytes

from ottla_broker.handlers import served_apis
from ottla_broker.handlers.dispatch import Dispatcher, RequestRecord
from ottla_broker.network.service import ANONYMOUS
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.leader_and_isr import LeaderAndIsrRequest


def dispatcher(clock: FakeClock) -> Dispatcher:
    given = services(clock=clock, served=served_apis(in_cluster=True))
    return Dispatcher(given, asyncio.get_running_loop())


async def test_each_answered_request_is_reported_in_one_place() -> None:
    clock = FakeClock()
    dispatch = dispatcher(clock)
    records: list[RequestRecord] = []
    dispatch.on_request = records.append
    client = Client(client_id=None, listener="EXTERNAL")
    for message, version in ((ApiVersionsRequest(), 0), (LeaderAndIsrRequest(), 7)):
        frame = request_bytes(message, version, client_id="me")[4:]
        parts = dispatch.handle(client, memoryview(frame))
        assert isinstance(parts, list)
        out = sum(len(part) for part in parts) - 4
        assert records[-1] == RequestRecord(
            message.API_KEY, version, ANONYMOUS, "me", "EXTERNAL", len(frame), out, 0.0
        )
    assert [record.api_key for record in records] == [ApiKey.API_VERSIONS, ApiKey.LEADER_AND_ISR]


async def test_nothing_is_reported_without_a_listener() -> None:
    dispatch = dispatcher(FakeClock())
    frame = request_bytes(ApiVersionsRequest(), 0)[4:]
    assert dispatch.handle(Client(), memoryview(frame))
