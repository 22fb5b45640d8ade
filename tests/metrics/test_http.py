"""The HTTP server: what it serves, and what it refuses."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from typing import Any

import pytest
from tests.support.clock import FakeClock
from tests.support.waiting import until

from ottla_broker.clock import SystemClock
from ottla_broker.config.model import INT_MAX
from ottla_broker.metadata.client_quotas import Windows
from ottla_broker.network.acceptor import open_listener
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.connection_rates import ConnectionRates
from ottla_protocol.aio.http_server import (
    HEAD_BYTES,
    HEAD_SECONDS,
    MOST_CONNECTIONS,
    MOST_OF_ADDRESS,
    PAGE_SECONDS,
    HttpServer,
    Page,
    json_page,
)


class World:
    def __init__(self, clock: FakeClock | SystemClock) -> None:
        self.never = asyncio.Event()
        self.defects: list[tuple[str, Exception]] = []
        self.server = HttpServer(
            {"/a": self.a, "/fails": self.fails, "/late": self.late, "/long": self.long},
            {"/query": self.query},
            failed=lambda *defect: self.defects.append(defect),
            timeout=clock.timeout,
        )
        sock = open_listener("127.0.0.1", 0, 64)
        self.port: int = sock.getsockname()[1]
        self._sock = sock

    async def start(self) -> None:
        await self.server.start(sock=self._sock)

    async def a(self) -> Page:
        return json_page(200, {"ok": True})

    async def query(self, query: Mapping[str, str]) -> Page:
        return json_page(200, query)

    async def fails(self) -> Page:
        raise RuntimeError("a defect")

    async def late(self) -> Page:
        await self.never.wait()
        raise AssertionError

    async def long(self) -> Page:
        return Page(200, "text/plain", [b"x" * 100_000] * 50)

    async def send(self, request: bytes, host: str = "127.0.0.1") -> tuple[int, bytes, bytes]:
        """Status, head and body; 0 if the connection ends without an answer."""
        async with asyncio.timeout(60):
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port, local_addr=(host, 0))
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
    loop, defects = asyncio.get_running_loop(), list[dict[str, Any]]()
    # Otherwise, each connection that is dropped is a traceback in the log.
    loop.set_exception_handler(lambda _, defect: defects.append(defect))
    made = World(SystemClock(loop))
    await made.start()
    yield made
    await made.server.close()
    await asyncio.sleep(0)
    assert not defects


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
        (b"GET /a HTTP/1.1\r\nHost: y", 400),
        (b"GET /a HTTP/1.1\r\nContent-Length: x", 400),
        (b"\x16\x03\x01\x00\xff", 400),
        (b"GET /fails HTTP/1.1", 500),
    ],
)
async def test_requests(world: World, request_line: bytes, status: int) -> None:
    found, head, body = await world.send(request_line + b"\r\nHost: x\r\n\r\n")
    assert found == status
    assert (not body) is request_line.startswith(b"HEAD")
    assert b"Connection: close" in head
    assert [(path, str(error)) for path, error in world.defects] == [("/fails", "a defect")] * (status == 500)
    if status == 404:
        assert b"/a, /fails" in body
    if body:
        assert f"Content-Length: {len(body)}".encode() in head


async def test_a_long_page_arrives(world: World) -> None:
    status, _, body = await world.send(b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n")
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
        late = asyncio.ensure_future(world.send(b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n"))
        await until(lambda: clock.pending >= 2)
        for _ in range(2):
            await clock.elapse(max(HEAD_SECONDS, PAGE_SECONDS) + 1)
        assert (await silent)[0] == 0
        assert (await late)[0] == 503
    finally:
        await world.server.close()


async def test_connections_are_bounded(world: World) -> None:
    hosts = ("127.0.0.1", "127.0.0.2", "127.0.0.3")
    late = b"GET /late HTTP/1.1\r\nHost: x\r\n\r\n"
    waiting = []
    for number, host in enumerate(hosts[:2], 1):
        waiting += [asyncio.ensure_future(world.send(late, host)) for _ in range(MOST_OF_ADDRESS)]
        await until(lambda number=number: world.server.connections == number * MOST_OF_ADDRESS)
        # One address doesn't take others' places.
        assert (await world.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", host))[0] == 0
        found = await world.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n", hosts[2])
        assert found[0] == (200 if number == 1 else 0)
    assert world.server.connections == MOST_CONNECTIONS
    await world.server.close()
    assert [(await each)[0] for each in waiting] == [0] * MOST_CONNECTIONS


async def test_the_limits_of_listeners_hold_for_addresses(world: World) -> None:
    clock = FakeClock()
    quotas = ConnectionQuotas(0, 1, {"127.0.0.2": 0})
    quotas.rates = ConnectionRates(clock, INT_MAX, Windows(2, 1000))
    quotas.rates.set_ip("127.0.0.3", 1.0)
    world.server.limit, world.server.is_too_early = quotas.limit_of, quotas.is_too_early
    request = b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"
    assert (await world.send(request, "127.0.0.1"))[0] == 200
    assert (await world.send(request, "127.0.0.2"))[0] == 0
    found = [(await world.send(request, "127.0.0.3"))[0] for _ in range(5)]
    assert found[0] == 200
    assert found[-1] == 0


async def test_a_query_of_many_values_is_not_read(world: World) -> None:
    assert (await world.send(b"GET /query?x=1&y= HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
    assert (await world.send(b"GET /query?" + b"&" * 100 + b" HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 400


async def test_clients_that_say_nothing_or_take_nothing_make_room_for_a_probe(world: World) -> None:
    silent = []
    for request in (b"", b"GET /a HTTP/1.1\r\n", b"GET /long HTTP/1.1\r\nHost: x\r\n\r\n"):
        for _ in range(MOST_CONNECTIONS + 5):
            _, writer = await asyncio.open_connection("127.0.0.1", world.port, limit=1)
            writer.write(request)
            silent.append(writer)
        assert (await world.send(b"GET /a HTTP/1.1\r\nHost: x\r\n\r\n"))[0] == 200
        await until(lambda: world.server.connections <= MOST_CONNECTIONS)
    for writer in silent:
        writer.transport.abort()
