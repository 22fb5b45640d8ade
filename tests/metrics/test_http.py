"""The HTTP server: what it serves, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest
from tests.support.clock import FakeClock
from tests.support.waiting import until

from ottla_broker.clock import SystemClock
from ottla_broker.network.acceptor import open_listener
from ottla_broker.network.http import (
    HEAD_BYTES,
    HEAD_SECONDS,
    MOST_CONNECTIONS,
    PAGE_SECONDS,
    HttpServer,
    Page,
    json_page,
)


class World:
    def __init__(self, clock: FakeClock | SystemClock) -> None:
        self.never = asyncio.Event()
        self.server = HttpServer(
            clock, {"/a": self.a, "/fails": self.fails, "/late": self.late, "/long": self.long}
        )
        sock = open_listener("127.0.0.1", 0, 64)
        self.port: int = sock.getsockname()[1]
        self._sock = sock

    async def start(self) -> None:
        await self.server.start(self._sock)

    async def a(self) -> Page:
        return json_page(200, {"ok": True})

    async def fails(self) -> Page:
        raise RuntimeError("a defect")

    async def late(self) -> Page:
        await self.never.wait()
        raise AssertionError

    async def long(self) -> Page:
        return Page(200, "text/plain", [b"x" * 100_000] * 50)

    async def send(self, request: bytes) -> tuple[int, bytes, bytes]:
        """Status, head and body; 0 if the connection ends without an answer."""
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            try:
                writer.write(request)
                answer = await reader.read(-1)
            except ConnectionError:
                return 0, b"", b""
            finally:
                writer.close()
        head, _, body = answer.partition(b"\r\n\r\n")
        return int(head.split()[1]) if head else 0, head, body


@pytest.fixture
async def world() -> AsyncIterator[World]:
    made = World(SystemClock(asyncio.get_running_loop()))
    await made.start()
    yield made
    await made.server.close()


@pytest.mark.parametrize(
    ("request_line", "status"),
    [
        (b"GET /a HTTP/1.1", 200),
        (b"GET /a?x=1 HTTP/1.0", 200),
        (b"HEAD /a HTTP/1.1", 200),
        (b"GET /b HTTP/1.1", 404),
        (b"POST /a HTTP/1.1", 405),
        (b"GET http://elsewhere/ HTTP/1.1", 400),
        (b"GET /a", 400),
        (b"GET /a HTTP/2", 400),
        (b"\x16\x03\x01\x00\xff", 400),
        (b"GET /fails HTTP/1.1", 500),
    ],
)
async def test_requests(world: World, request_line: bytes, status: int) -> None:
    found, head, body = await world.send(request_line + b"\r\nHost: x\r\n\r\n")
    assert found == status
    assert (not body) is request_line.startswith(b"HEAD")
    assert b"Connection: close" in head
    if status == 404:
        assert b"/a, /fails" in body
    if body:
        assert f"Content-Length: {len(body)}".encode() in head


async def test_a_long_page_arrives(world: World) -> None:
    status, _, body = await world.send(b"GET /long HTTP/1.1\r\n\r\n")
    assert (status, len(body)) == (200, 5_000_000)


async def test_a_long_head_is_refused(world: World) -> None:
    status, _, _ = await world.send(b"GET /a HTTP/1.1\r\nX: " + b"x" * 2 * HEAD_BYTES)
    assert status == 431


async def test_clients_that_wait_are_dropped() -> None:
    clock = FakeClock()
    world = World(clock)
    await world.start()
    try:
        silent = asyncio.ensure_future(world.send(b"GET /a HTTP/1.1\r\n"))
        late = asyncio.ensure_future(world.send(b"GET /late HTTP/1.1\r\n\r\n"))
        await until(lambda: clock.pending >= 2)
        for _ in range(2):
            await clock.elapse(max(HEAD_SECONDS, PAGE_SECONDS) + 1)
        assert (await silent)[0] == 0
        assert (await late)[0] == 503
    finally:
        await world.server.close()


async def test_connections_are_bounded(world: World) -> None:
    waiting = [
        asyncio.ensure_future(world.send(b"GET /late HTTP/1.1\r\n\r\n")) for _ in range(MOST_CONNECTIONS)
    ]
    await until(lambda: world.server.connections == MOST_CONNECTIONS)
    assert (await world.send(b"GET /a HTTP/1.1\r\n\r\n"))[0] == 0
    await world.server.close()
    assert [(await each)[0] for each in waiting] == [0] * MOST_CONNECTIONS


async def test_clients_that_say_nothing_or_take_nothing_make_room_for_a_probe(world: World) -> None:
    silent = []
    for request in (b"", b"GET /a HTTP/1.1\r\n", b"GET /long HTTP/1.1\r\n\r\n"):
        for _ in range(MOST_CONNECTIONS + 5):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1)
            writer.write(request)
            silent.append(writer)
        assert (await world.send(b"GET /a HTTP/1.1\r\n\r\n"))[0] == 200
        await until(lambda: world.server.connections <= MOST_CONNECTIONS)
    for writer in silent:
        writer.transport.abort()
