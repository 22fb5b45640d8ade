"""A server on the test's own loop that leaves nothing behind when it stops.

``asyncio.Server`` of Python 3.11 doesn't know of a connection that it has accepted and not passed on yet: if the loop
ends then, the connection is never closed, and its ResourceWarning fails a test that runs later.
"""

from __future__ import annotations

import asyncio
import socket
import ssl
from collections.abc import Awaitable, Callable
from contextlib import suppress

Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class Listener:
    """Runs ``serve`` for each connection, and closes the connection at its end.

    With a server's TLS context, connections begin with its handshake. ``sock`` is a socket that listens already.
    """

    def __init__(
        self,
        serve: Serve,
        host: str = "127.0.0.1",
        port: int = 0,
        *,
        sock: socket.socket | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._serve = serve
        self._tls = tls
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        self._socket = sock or socket.create_server((host, port), family=family, backlog=100)
        self._socket.setblocking(False)
        self.port: int = self._socket.getsockname()[1]
        self.writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(self._socket, self._accept)

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def open_now(self) -> int:
        """The number of connections that nothing has begun to close."""
        return sum(not writer.transport.is_closing() for writer in self.writers)

    def cut(self) -> None:
        """Break all connections without sending anything."""
        for writer in self.writers:
            writer.transport.abort()

    async def stop(self) -> None:
        """Stop listening, cut all connections, and wait until their sockets are closed."""
        if self._socket.fileno() < 0:
            return
        self._loop.remove_reader(self._socket)
        self._socket.close()
        await asyncio.sleep(0)  # all tasks have begun then, so each closes its connection
        self.cut()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def __aenter__(self) -> Listener:
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.stop()

    def _accept(self) -> None:
        try:
            connection, _ = self._socket.accept()
        except (BlockingIOError, InterruptedError, ConnectionAbortedError):
            return
        connection.setblocking(False)
        task = self._loop.create_task(self._run(connection))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _run(self, connection: socket.socket) -> None:
        reader = asyncio.StreamReader()
        protocol = asyncio.StreamReaderProtocol(reader)
        try:
            transport, _ = await self._loop.connect_accepted_socket(
                lambda: protocol, connection, ssl=self._tls
            )
        except OSError:
            return  # no handshake
        writer = asyncio.StreamWriter(transport, protocol, reader, self._loop)
        self.writers.add(writer)
        try:
            await self._serve(reader, writer)
        except (asyncio.IncompleteReadError, ConnectionError):
            pass  # the other side went
        finally:
            writer.close()
            with suppress(OSError):
                await writer.wait_closed()
            self.writers.discard(writer)
