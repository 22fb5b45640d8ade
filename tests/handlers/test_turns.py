"""Long requests take turns with everything else."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest
from tests.support.clock import FakeClock
from tests.support.handlers import Client, services
from tests.support.wire import request_bytes

from ottla_broker.handlers import served_apis
from ottla_broker.handlers.dispatch import Dispatcher
from ottla_broker.handlers.turns import AT_ONCE, TURN, Job, Turns, at_once
from ottla_broker.network.pending_response import PendingResponse
from ottla_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse


class Loop:
    """Collects what is to be called in the next turn."""

    def __init__(self) -> None:
        self.calls: list[object] = []

    def call_soon(self, call: object) -> None:
        self.calls.append(call)

    def turn(self) -> None:
        calls, self.calls = self.calls, []
        for call in calls:
            call()  # type: ignore[operator]


def work(done: list[str], name: str, steps: int) -> Job:
    for _ in range(steps):
        done.append(name)
        yield 1


def test_a_turn_does_limited_work_of_one_job_after_another() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    turns.start(work(done, "a", 2 * TURN))
    turns.start(work(done, "b", 10))
    assert not done
    loop.turn()
    assert done == ["a"] * TURN
    while loop.calls:
        loop.turn()
    assert done == ["a"] * 2 * TURN + ["b"] * 10
    assert turns.longest == TURN


def test_the_beginning_of_a_handler_runs_at_once() -> None:
    def handler(count: int) -> Iterator[int]:
        for _ in range(count):
            yield 1

    assert at_once(handler(AT_ONCE - 1)) == (True, None)  # type: ignore[arg-type]
    assert at_once(handler(AT_ONCE + 1))[0] is False  # type: ignore[arg-type]


class Row:
    """A connection's row of responses."""

    def __init__(self) -> None:
        self.ready = asyncio.Event()

    def on_response_ready(self) -> None:
        self.ready.set()

    def close(self, reason: str | None) -> None:
        raise AssertionError(reason)


class Held(Client):
    """A client that nothing is read from while it waits."""

    long = 0

    def begin_long(self) -> None:
        self.long += 1

    def end_long(self) -> None:
        self.long -= 1


def large_request() -> bytes:
    # The bytes after the message are ignored.
    return request_bytes(ApiVersionsRequest(), 0)[4:] + bytes(10_000)


async def test_a_large_request_is_answered_later_and_holds_its_connection() -> None:
    given = services(clock=FakeClock(), served=served_apis(in_cluster=False))
    dispatch = Dispatcher(given, asyncio.get_running_loop())
    client, row = Held(), Row()
    pending = dispatch.handle(client, memoryview(large_request()))
    assert isinstance(pending, PendingResponse)
    pending.put(row)
    assert client.long == 1
    async with asyncio.timeout(60):
        await row.ready.wait()
    assert client.long == 0
    (header, body) = pending.parts or ()
    assert ApiVersionsResponse.decode(bytes(body), 0).api_keys  # type: ignore[call-overload]
    assert len(bytes(header)) == 8  # type: ignore[call-overload]


async def test_a_client_that_leaves_ends_its_request() -> None:
    given = services(clock=FakeClock(), served=served_apis(in_cluster=False))
    dispatch = Dispatcher(given, asyncio.get_running_loop())
    client = Held()
    pending = dispatch.handle(client, memoryview(large_request()))
    assert isinstance(pending, PendingResponse)
    assert pending.abandon is not None
    pending.abandon()
    assert client.long == 0
    for _ in range(5):
        await asyncio.sleep(0)
    assert not pending.done


def test_a_defect_of_one_job_does_not_end_the_others() -> None:
    def defective() -> Job:
        yield 1
        raise RuntimeError("a defect")

    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    turns.start(defective())
    turns.start(work(done, "b", 10))
    with pytest.raises(RuntimeError, match="a defect"):
        loop.turn()
    while loop.calls:
        loop.turn()
    assert done == ["b"] * 10
