"""Connections that say nothing, or take nothing, don't keep others from the console."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
from aiohttp import web
from tests.support.certificates import Certificates

from ottla_console import connections
from ottla_console.connections import LimitedSite

HEAD = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"
Pair = tuple[asyncio.StreamReader, asyncio.StreamWriter]


@asynccontextmanager
async def served(
    handler: Callable[[web.BaseRequest], Any] | None = None, tls: ssl.SSLContext | None = None
) -> AsyncIterator[tuple[LimitedSite, Callable[..., Any]]]:
    """A site, and what opens a connection to it."""

    async def answer(_: web.BaseRequest) -> web.StreamResponse:
        return web.Response(text="well")

    runner = web.ServerRunner(web.Server(handler or answer, keepalive_timeout=60))  # type: ignore[arg-type]
    await runner.setup()
    site = LimitedSite(runner, "127.0.0.1", 0, tls)
    opened: list[Pair] = []
    try:
        await site.start()

        async def connect(data: bytes = b"", **options: Any) -> Pair:
            pair = await asyncio.open_connection("127.0.0.1", runner.addresses[0][1], **options)
            opened.append(pair)
            pair[1].write(data)
            return pair

        yield site, connect
    finally:
        for _, writer in opened:
            writer.transport.abort()
        await runner.cleanup()
        site.connections.close()


async def status(pair: Pair) -> bytes:
    return await asyncio.wait_for(pair[0].readuntil(b"well"), 60)


async def ended(pair: Pair) -> bool:
    try:
        return await asyncio.wait_for(pair[0].read(), 60) == b""
    except ConnectionError:
        return True


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "MOST_CONNECTIONS", 8)
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", 4)


@pytest.mark.usefixtures("few")
async def test_silent_connections_make_room(caplog: pytest.LogCaptureFixture) -> None:
    """With 1,100 of them no other was served, and the log grew by a megabyte a second."""
    async with served() as (_, connect):
        silent = [await connect(HEAD[:-2]) for _ in range(20)]
        assert b" 200 " in await status(await connect(HEAD))
        for each in silent[:16]:
            assert await ended(each)
    (record,) = [each for each in caplog.records if each.levelno >= logging.WARNING]
    assert record.getMessage() == "127.0.0.1 has 4 connections; others of its own are closed"
    assert record.exc_info is None


@pytest.mark.usefixtures("few")
async def test_one_that_is_served_keeps_its_place() -> None:
    go_on, asked = asyncio.Event(), asyncio.Semaphore(0)

    async def slow(_: web.BaseRequest) -> web.StreamResponse:
        asked.release()
        await go_on.wait()
        return web.Response(text="well")

    async with served(slow) as (site, connect):
        busy = [await connect(HEAD) for _ in range(4)]
        for _ in busy:
            await asyncio.wait_for(asked.acquire(), 60)
        assert await ended(await connect(HEAD)), "there is no place"
        go_on.set()
        for each in busy:
            assert b" 200 " in await status(each)
        # Now they wait for another request.
        assert b" 200 " in await status(await connect(HEAD))
        assert await ended(busy[0])
        assert len(site.connections._open) == 4


@pytest.mark.usefixtures("few")
async def test_beyond_all_the_address_with_most_makes_room() -> None:
    class Transport(asyncio.Transport):
        def __init__(self, host: str) -> None:
            super().__init__({"peername": (host, 1)})
            self.is_open = True

        def abort(self) -> None:
            self.is_open = False

    class Handler:
        _request_in_progress = False

        def connection_made(self, _: Any) -> None:
            pass

    limits = connections.Connections(Handler, None)
    hosts = ["a", "b", "b", "c", "b", "::ffff:d", "e", "f", "g", "d"]
    transports = [Transport(host) for host in hosts]
    try:
        for each in transports:
            limits.made().connection_made(each)
        assert [each.is_open for each in transports] == [True, False, False, *[True] * 7]
    finally:
        limits.close()
    assert not any(each.is_open for each in transports)


async def test_who_takes_no_response_is_dropped(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "SEND_SECONDS", 0.01)
    monkeypatch.setattr(connections, "_LOOK_SECONDS", 0.01)
    gone = asyncio.Event()

    async def endless(request: web.BaseRequest) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        try:
            while True:
                await response.write(b"x" * (1 << 20))
        finally:
            gone.set()

    async with served(endless) as (site, connect):
        await connect(HEAD)
        await asyncio.wait_for(gone.wait(), 60)
        assert not site.connections._open


async def test_one_that_takes_less_than_comes_is_kept() -> None:
    """A page with live events on a slow link was dropped: more and more waited for it."""

    class Transport(asyncio.Transport):
        unsent = 0

        def write(self, data: bytes | bytearray | memoryview) -> None:
            self.unsent += len(data)

        def get_write_buffer_size(self) -> int:
            return self.unsent

        def abort(self) -> None:
            pass

    class Handler:
        def connection_made(self, transport: Any) -> None:
            self.transport = transport

    handlers: list[Handler] = []

    def server() -> Handler:
        handlers.append(Handler())
        return handlers[-1]

    limits = connections.Connections(server, None)
    _, stuck = made = [limits.made() for _ in range(2)]
    links = [Transport(), Transport()]
    try:
        for each, link in zip(made, links, strict=True):
            each.connection_made(link)
        dropped: dict[Any, float] = {}
        for now in range(0, 100, 5):
            for each, handler in zip(made, handlers, strict=True):
                handler.transport.write(b"x" * 10)
                handler.transport.writelines([b"y", b"z"])
                if each.is_stuck(float(now)):  # type: ignore[attr-defined]
                    dropped.setdefault(each, now)
            links[0].unsent -= 1
        assert dropped == {stuck: connections.SEND_SECONDS}
    finally:
        limits.close()


async def test_by_tls(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Connections count before their handshake, which has a deadline."""
    certificates = Certificates(tmp_path)
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(certificates.server)
    trusted = certificates.shown(None)
    monkeypatch.setattr(connections, "MOST_OF_ADDRESS", 4)
    monkeypatch.setattr(connections, "HANDSHAKE_SECONDS", 0.5)
    async with served(tls=context) as (site, connect):
        pair = await connect(HEAD, ssl=trusted)
        assert b" 200 " in await status(pair)
        for each in [await connect() for _ in range(2)]:
            assert await ended(each)
        silent = [await connect() for _ in range(10)]
        assert b" 200 " in await status(await connect(HEAD, ssl=trusted))
        for each in silent:
            assert await ended(each)
        assert len(site.connections._open) == 1


async def test_no_file_for_a_connection_is_one_line_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    loop = asyncio.get_running_loop()
    others: list[dict[str, Any]] = []
    before = loop.get_exception_handler()
    loop.set_exception_handler(lambda _, context: others.append(context))
    try:
        async with served():
            for _ in range(3):
                error = OSError(24, "Too many open files")
                loop.call_exception_handler(
                    {"message": "socket.accept() out of system resource", "exception": error}
                )
            loop.call_exception_handler({"message": "another"})
    finally:
        loop.set_exception_handler(before)
    assert [each.getMessage() for each in caplog.records] == [
        "connections can't be accepted: Too many open files"
    ]
    assert others == [{"message": "another"}]
