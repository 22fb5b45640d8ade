"""An acceptor with services that answer as each test needs, and a client of frames."""

from __future__ import annotations

import asyncio
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress

from ottla_broker.clock import SystemClock
from ottla_broker.network.acceptor import Acceptor, open_listener
from ottla_broker.network.connection import Connection
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.processor import SocketSettings
from ottla_broker.network.request_memory import RequestMemory, request_memory_bound
from ottla_broker.network.service import Reply
from ottla_broker.network.tls_handshake import TlsListener

Handle = Callable[[Connection, memoryview], Reply]


class FakeService:
    def __init__(self, handle: Handle) -> None:
        self._handle = handle

    def handle(self, connection: Connection, frame: memoryview) -> Reply:
        return self._handle(connection, frame)


def echo(connection: Connection, frame: memoryview) -> Reply:
    return [framed(bytes(frame))]


def framed(body: bytes) -> bytes:
    return struct.pack(">i", len(body)) + body


@asynccontextmanager
async def serving(
    handle: Handle,
    *,
    processors: int = 2,
    total: int = 1000,
    per_ip: int = 1000,
    overrides: dict[str, int] | None = None,
    memory: int = -1,
    max_request: int = 1 << 20,
    max_idle_ms: int = -1,
    max_parked: int = 10,
    quotas: ConnectionQuotas | None = None,
    host: str = "127.0.0.1",
    tls: TlsListener | None = None,
) -> AsyncIterator[Acceptor]:
    loop = asyncio.get_running_loop()
    acceptor = Acceptor(
        "PLAINTEXT",
        open_listener(host, 0, 50),
        processors,
        loop,
        SystemClock(loop),
        FakeService(handle),
        quotas or ConnectionQuotas(total, per_ip, overrides or {}),
        RequestMemory(request_memory_bound(memory, max_request), SystemClock(loop)),
        SocketSettings(max_request, max_idle_ms, max_parked, -1, -1),
        tls,
    )
    acceptor.start()
    try:
        yield acceptor
    finally:
        await acceptor.close()


class Client:
    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, *bodies: bytes) -> None:
        self.writer.write(b"".join(map(framed, bodies)))

    async def receive(self) -> bytes:
        (size,) = struct.unpack(">i", await asyncio.wait_for(self.reader.readexactly(4), 60))
        return await asyncio.wait_for(self.reader.readexactly(size), 60)

    async def closed(self) -> bool:
        try:
            return await asyncio.wait_for(self.reader.read(1), 60) == b""
        except (ConnectionResetError, ssl.SSLError):
            return True


@asynccontextmanager
async def client(acceptor: Acceptor, tls: ssl.SSLContext | None = None) -> AsyncIterator[Client]:
    reader, writer = await asyncio.open_connection(
        "127.0.0.1", acceptor.port, ssl=tls, server_hostname=None if tls is None else "localhost"
    )
    try:
        yield Client(reader, writer)
    finally:
        writer.close()
        with suppress(ConnectionError):
            await writer.wait_closed()


async def exchange_at_once(clients: list[Client]) -> None:
    """All clients send frames of very different sizes at once, and get them back."""
    bodies = [b"first", bytes(70_000), *(b"%d" % i * (i % 40) for i in range(300)), bytes(300_000), b"last"]

    async def exchange(one: Client) -> None:
        one.send(*bodies)
        assert [await one.receive() for _ in bodies] == bodies

    await asyncio.gather(*map(exchange, clients))
