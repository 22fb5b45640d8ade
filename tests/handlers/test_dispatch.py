"""The way from a frame to its handler and back, without a connection."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from tests.support.clock import FakeClock
from tests.support.handlers import Client, services
from tests.support.wire import request_bytes

from ottla_broker.handlers import served_apis
from ottla_broker.metadata.client_quotas import QuotaEntity, QuotaKind
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.requests.dispatch import Dispatcher
from ottla_broker.requests.inline import Result
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


class Slow:
    """A response whose encoding takes half a second."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    def encode_parts(self, version: int) -> list[Any]:
        self._clock.advance(0.5)
        return HeartbeatResponse().encode_parts(version)


async def test_the_encoding_of_a_pending_answer_counts_as_the_clients_time() -> None:
    clock, row = FakeClock(), Row()
    answer: Result[Slow] = Result()
    given = services(clock=clock, served=served_apis(in_cluster=False))
    given.quotas.set(QuotaEntity(None, "me"), {"request_percentage": 1.0})
    dispatch = Dispatcher(given)
    frame = request_bytes(HeartbeatRequest(group_id="g"), 4, client_id="me")[4:]
    route = dispatch._route(ApiKey.HEARTBEAT, 4)
    assert route is not None

    async def handle(*_: object) -> Slow:
        return await answer

    route.gate, route.handle = None, handle
    pending = dispatch.handle(Client(), memoryview(frame))
    assert isinstance(pending, PendingResponse)
    pending.put(row)
    answer.give(Slow(clock))
    assert row.ready.is_set()
    now_ms = int(clock.monotonic() * 1000)
    assert given.quotas.record(QuotaKind.REQUEST, "", "me", 0.0, now_ms) > 0


class Row:
    """A connection's row of responses."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()
        self.reason: str | None = None

    def on_response_ready(self) -> None:
        self.ready.set()

    def close(self, reason: str | None) -> None:
        self.reason = reason
        self.ready.set()


class Loading:
    """A broker whose coordinators are loaded when the test says so."""

    def __init__(self) -> None:
        self.may_end = asyncio.Event()
        self.failure: Exception | None = None
        self.asked: list[bool] = []
        groups: Any = SimpleNamespace(heartbeat=self.heartbeat)
        given = services(clock=FakeClock(), served=served_apis(in_cluster=False), groups=groups)
        given.load_coordinators = self.load
        self.dispatch = Dispatcher(given)
        self.heard: list[str] = []

    async def load(self, groups: bool) -> None:
        self.asked.append(groups)
        await self.may_end.wait()
        if self.failure is not None:
            raise self.failure

    def heartbeat(self, group_id: str, *_: Any) -> int:
        assert self.may_end.is_set()
        self.heard.append(group_id)
        return 0

    def send(self, group_id: str, client: Client | None = None) -> Any:
        frame = bytearray(request_bytes(HeartbeatRequest(group_id=group_id, member_id="m"), 4)[4:])
        reply = self.dispatch.handle(client or Client(), memoryview(frame))
        frame[:] = bytes(len(frame))  # as the connection uses its buffer again
        return reply


async def test_a_request_waits_until_its_coordinator_is_loaded() -> None:
    broker, row = Loading(), Row()
    first, second = broker.send("g1"), broker.send("g2")
    first.put(row)
    assert isinstance(second, PendingResponse)
    other = request_bytes(ApiVersionsRequest(), 0)[4:]
    assert isinstance(broker.dispatch.handle(Client(), memoryview(other)), list), (
        "others are served meanwhile"
    )
    broker.may_end.set()
    await row.ready.wait()
    (part,) = first.parts
    assert HeartbeatResponse.decode(part[9:], 4).error_code == 0
    assert broker.asked == [True, True]
    assert broker.heard == ["g1", "g2"]
    assert isinstance(broker.send("g3"), list), "the next one needs no wait"
    broker.dispatch.close()


async def test_a_coordinator_that_cannot_be_loaded_closes_the_connection() -> None:
    broker, row = Loading(), Row()
    broker.failure = ModuleNotFoundError("no module")
    broker.send("g").put(row)
    broker.may_end.set()
    await row.ready.wait()
    assert row.reason == "a coordinator can't be built: no module"
    assert not broker.heard
    broker.dispatch.close()


async def test_a_client_that_leaves_before_is_not_served() -> None:
    broker, row, client = Loading(), Row(), Client()
    client.has_left = lambda: True  # type: ignore[method-assign]
    broker.send("g", client).put(row)
    broker.may_end.set()
    await row.ready.wait()
    assert not broker.heard
    broker.dispatch.close()
