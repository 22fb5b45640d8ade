"""A TCP proxy between clients and a broker that cuts, holds and refuses connections as a test wants it.

Clients go to the address that a broker advertises, so a broker behind a proxy has to advertise the proxy's::

    with Proxy() as proxy:
        broker = own_broker(settings={"advertised.listeners": f"PLAINTEXT://{proxy.address}"})
        proxy.target = broker.port

With a server's TLS context it speaks TLS to clients, and plain text to the broker. It runs in a thread of its own, so
it serves tests with and without an event loop.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Any

from tests.support.listening import Listener


class Proxy:
    """Forwards 127.0.0.1:``port`` to 127.0.0.1:``target``. Every method may be called from any thread."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self._tls = tls
        self._socket = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._socket.getsockname()[1]
        self.target = 0
        self.refusing = False
        """Close connections as soon as they come."""
        self.limits: Callable[[], tuple[int | None, int | None]] = lambda: (None, None)
        """Asked for each new connection: after how many bytes to the broker, or from it, it is cut."""
        self.accepted = 0
        self.cuts = 0
        self._loop = asyncio.new_event_loop()
        self._forwarding: asyncio.Event | None = None
        self._connections: set[asyncio.Task[None]] = set()
        self._thread = threading.Thread(target=self._run, name="proxy", daemon=True)
        self._ready = threading.Event()
        self._stop: asyncio.Event | None = None

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def __enter__(self) -> Proxy:
        self._thread.start()
        assert self._ready.wait(60)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        assert self._stop is not None
        self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(60)
        assert not self._thread.is_alive()

    def cut(self) -> None:
        """Break all connections that are open now."""
        self._call(self._cut)

    def hold(self) -> None:
        """Forward nothing, in either direction, until ``release``; connections stay open."""
        assert self._forwarding is not None
        self._call(self._forwarding.clear)

    def release(self) -> None:
        """Forward again, what was held first."""
        assert self._forwarding is not None
        self._call(self._forwarding.set)

    # ---- in the thread

    def _call(self, what: Callable[[], Any]) -> None:
        done = threading.Event()

        def run() -> None:
            what()
            done.set()

        self._loop.call_soon_threadsafe(run)
        assert done.wait(60)

    def _cut(self) -> None:
        for task in self._connections:
            self.cuts += 1
            task.cancel()

    def _run(self) -> None:
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_until_complete(self._serve())
        finally:
            self._loop.close()

    async def _serve(self) -> None:
        self._stop = asyncio.Event()
        self._forwarding = asyncio.Event()
        self._forwarding.set()
        async with Listener(self._connect, sock=self._socket, tls=self._tls):
            self._ready.set()
            await self._stop.wait()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.accepted += 1
        task = asyncio.current_task()
        assert task is not None
        self._connections.add(task)
        task.add_done_callback(self._connections.discard)
        to_broker, from_broker = self.limits()
        broker: asyncio.StreamWriter | None = None
        try:
            if self.refusing:
                return
            answers, broker = await asyncio.open_connection("127.0.0.1", self.target)
            pumps = [
                asyncio.ensure_future(self._pump(reader, broker, to_broker)),
                asyncio.ensure_future(self._pump(answers, writer, from_broker)),
            ]
            try:
                await asyncio.wait(pumps, return_when=asyncio.FIRST_COMPLETED)
            finally:
                for pump in pumps:
                    pump.cancel()
                await asyncio.gather(*pumps, return_exceptions=True)
        except (OSError, asyncio.CancelledError):
            pass  # a cut, or a broker that isn't there: both ends are closed below
        finally:
            for end in (writer, broker):
                if end is not None:
                    # Nothing that is still buffered goes on: a cut is a cut.
                    end.transport.abort()

    async def _pump(
        self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, limit: int | None
    ) -> None:
        assert self._forwarding is not None
        passed = 0
        with contextlib.suppress(OSError):
            while data := await reader.read(65_536):
                await self._forwarding.wait()
                if limit is not None and passed + len(data) >= limit:
                    writer.write(data[: max(0, limit - passed)])
                    await writer.drain()
                    self.cuts += 1
                    return
                passed += len(data)
                writer.write(data)
                await writer.drain()
