"""Long requests take turns with everything else."""

from __future__ import annotations

import asyncio

import pytest
from tests.support.clock import FakeClock
from tests.support.handlers import Client, api_of, services
from tests.support.wire import request_bytes

from ottla_broker.handlers import served_apis
from ottla_broker.network.pending_response import PendingResponse
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.dispatch import Dispatcher
from ottla_broker.requests.inline import pause
from ottla_broker.requests.serving import Serving
from ottla_broker.requests.turns import (
    AT_ONCE,
    AT_ONCE_MEMORY,
    SMALL_MEMORY,
    TURN,
    Job,
    Turns,
)
from ottla_protocol.api_keys import ApiKey
from ottla_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic


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


def test_jobs_share_turns_of_limited_work() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    turns.start(work(done, "a", 2 * TURN), "client")
    turns.start(work(done, "b", 10), "client")
    assert not done
    loop.turn()
    assert done == ["a"] * TURN
    while loop.calls:
        loop.turn()
    assert done == ["a"] * TURN + ["b"] * 10 + ["a"] * TURN
    assert turns.longest == TURN


def test_a_short_job_does_not_wait_for_long_ones_before_it() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    for name in "abcdefgh":
        turns.start(work(done, name, 50 * TURN), "client")
    turns.start(work(done, "short", 10), "client")
    for _ in range(9):
        loop.turn()
    assert done.count("short") == 10
    turns.close()


def test_clients_take_turns_whatever_they_have_begun() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    for _ in range(8):
        turns.start(work(done, "flood", 4 * TURN), "flood", AT_ONCE_MEMORY)
        turns.start(work(done, "small", 4 * TURN), "flood")
    turns.start(work(done, "other", TURN), "other")
    turns.start(work(done, "large", TURN), "other", AT_ONCE_MEMORY)
    for _ in range(3):
        loop.turn()
    assert done.count("other") == TURN
    # What takes much memory waits for what has begun, and for one more of the other client.
    while "large" not in done:
        loop.turn()
    assert done.count("flood") == 2 * 4 * TURN
    turns.close()


def test_jobs_that_take_much_memory_wait_for_one_another() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    more_than_half = AT_ONCE_MEMORY // 2 + 1
    turns.start(work(done, "a", 2 * TURN), "client", more_than_half)
    turns.start(work(done, "b", 2 * TURN), "client", more_than_half)
    turns.start(work(done, "c", 2 * TURN), "client", more_than_half)
    turns.start(work(done, "small", 10), "client", SMALL_MEMORY)
    while "b" not in done:
        loop.turn()
    assert done.count("a") == 2 * TURN
    assert done.count("small") == 10
    while loop.calls:
        loop.turn()
    assert done[-1] == "c"
    assert len(done) == 6 * TURN + 10


def test_jobs_that_wait_for_memory_end_with_the_others() -> None:
    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    turns.start(work(done, "a", 2 * TURN), "client", AT_ONCE_MEMORY)
    turns.start(work(done, "b", 2 * TURN), "client", AT_ONCE_MEMORY)
    turns.close()
    while loop.calls:
        loop.turn()
    assert not done


async def test_a_handler_runs_at_once_until_it_has_done_much() -> None:
    async def handler(count: int) -> None:
        for _ in range(count):
            await pause(1)

    given = services(clock=FakeClock())
    client = Held()
    context = RequestContext(given, {}, 0, "me", client, 1)
    assert Serving(handler(AT_ONCE - 1), set(), context, api_of(ApiKey.METADATA)).start().given
    assert not client.long
    serving = Serving(handler(3 * TURN), set(), context, api_of(ApiKey.METADATA)).start()
    assert not serving.given
    assert client.long == 1
    while not serving.given:
        await asyncio.sleep(0)
    assert given.turns.longest == TURN
    assert not client.long


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
    pending: PendingResponse | None = None
    gone = False

    def begin_long(self) -> None:
        self.long += 1

    def end_long(self) -> None:
        self.long -= 1

    def has_left(self) -> bool:
        if self.gone and self.pending is not None and self.pending.abandon is not None:
            self.pending.abandon()
        return self.gone


def large_request() -> bytes:
    # The bytes after the message are ignored.
    return request_bytes(ApiVersionsRequest(), 0)[4:] + bytes(10_000)


async def test_a_large_request_is_answered_later_and_holds_its_connection() -> None:
    given = services(clock=FakeClock(), served=served_apis(in_cluster=False))
    dispatch = Dispatcher(given)
    client, row = Held(), Row()
    pending = dispatch.handle(client, memoryview(large_request()))
    assert isinstance(pending, PendingResponse)
    pending.put(row)
    assert client.long == 1
    async with asyncio.timeout(60):
        await row.ready.wait()
    assert client.long == 0
    (answer,) = pending.parts or ()
    assert ApiVersionsResponse.decode(bytes(answer), 0, 8).api_keys  # type: ignore[call-overload]


async def test_a_client_that_leaves_ends_its_request() -> None:
    given = services(clock=FakeClock(), served=served_apis(in_cluster=False))
    dispatch = Dispatcher(given)
    client = Held()
    pending = dispatch.handle(client, memoryview(large_request()))
    assert isinstance(pending, PendingResponse)
    assert pending.abandon is not None
    pending.abandon()
    assert client.long == 0
    for _ in range(5):
        await asyncio.sleep(0)
    assert not pending.ready


async def test_a_request_that_has_not_begun_ends_with_the_broker() -> None:
    dispatch = Dispatcher(services(clock=FakeClock(), served=served_apis(in_cluster=False)))
    pending = dispatch.handle(Held(), memoryview(large_request()))
    assert isinstance(pending, PendingResponse)
    dispatch.close()
    assert not pending.ready  # and no warning of a coroutine that was never awaited


def names_of(count: int) -> bytes:
    topics = [MetadataRequestTopic(name=f"absent-{number}") for number in range(count)]
    return request_bytes(MetadataRequest(topics=topics, allow_auto_topic_creation=False), 9)[4:]


async def test_a_request_whose_client_has_gone_takes_no_more_turns() -> None:
    given = services(clock=FakeClock(), served=served_apis(in_cluster=False))
    dispatch = Dispatcher(given)
    client = Held()
    pending = client.pending = dispatch.handle(client, memoryview(names_of(40_000)))  # type: ignore[assignment]
    assert pending is not None
    for _ in range(3):
        await asyncio.sleep(0)
    assert given.turns.longest
    assert not given.turns.is_idle
    client.gone = True
    for _ in range(3):
        await asyncio.sleep(0)
    assert client.long == 0
    assert not pending.ready
    assert given.turns.is_idle


def test_a_defect_of_one_job_does_not_end_the_others() -> None:
    def defective() -> Job:
        yield 1
        raise RuntimeError("a defect")

    loop, done = Loop(), list[str]()
    turns = Turns(loop.call_soon)
    turns.start(defective(), "client")
    turns.start(work(done, "b", 10), "client")
    with pytest.raises(RuntimeError, match="a defect"):
        loop.turn()
    while loop.calls:
        loop.turn()
    assert done == ["b"] * 10
