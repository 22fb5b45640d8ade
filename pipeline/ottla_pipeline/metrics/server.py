"""Serves a job's ``/metrics`` over plain HTTP, from a thread of its own.

It trusts nothing that comes in: a request has to arrive, and its response to be taken, within :data:`SECONDS`; a
request's head may have :data:`HEAD_BYTES`, a body is never read, and connections beyond :data:`MOST_CONNECTIONS` are
closed at once. Scrapers that come while a text is being made share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import contextmanager
from http import HTTPStatus
from threading import Thread
from typing import Final

from ottla_protocol.loopback import is_loopback
from ottla_protocol.prometheus import CONTENT_TYPE, parse_address

log = logging.getLogger("ottla_pipeline")

HEAD_BYTES: Final = 8192
SECONDS: Final = 30.0
MOST_CONNECTIONS: Final = 16
PATH: Final = "/metrics"
_END: Final = b"\r\n\r\n"
_TEXT: Final = "text/plain; charset=utf-8"

Address = tuple[str, int]


class MetricsServer:
    """``render`` makes the text of a scrape; it is called on another thread, one call at a time."""

    def __init__(self, address: Address, render: Callable[[], bytes]) -> None:
        self._wanted = address
        self._render = render
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._rendering: asyncio.Future[bytes] | None = None
        self._tasks: set[asyncio.Task[None]] = set()

    def start(self) -> Address:
        """Listen; returns the host and the port in use. Raises OSError if the address can't be had."""
        started: Future[Address] = Future()
        self._thread = Thread(target=self._run, args=(started,), name="ottla-metrics", daemon=True)
        self._thread.start()
        try:
            return started.result()
        except OSError:
            self._thread.join()
            raise

    def close(self) -> None:
        """Stop listening, drop the connections, and wait for the thread."""
        if self._loop is not None and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        if self._thread is not None:
            self._thread.join()

    def _run(self, started: Future[Address]) -> None:
        try:
            asyncio.run(self._serve(started))
        except BaseException as error:
            if started.done():
                log.exception("metrics are no longer served")
            else:
                started.set_exception(error)

    async def _serve(self, started: Future[Address]) -> None:
        host, port = self._wanted
        server = await asyncio.start_server(self._connected, host, port, limit=HEAD_BYTES)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        shown = server.sockets[0].getsockname()
        started.set_result((shown[0], shown[1]))
        await self._stop.wait()
        # asyncio hands over a connection some turns after accepting it, and not at all once the server is closed:
        # accept none from here on, and close when those are here.
        for listening in server.sockets:
            self._loop.remove_reader(listening.fileno())
        await self._ended(without=self._tasks)
        server.close()
        for task in self._tasks:
            task.cancel()
        await self._ended()

    async def _ended(self, without: AbstractSet[asyncio.Task[None]] = frozenset()) -> None:
        """Wait for the loop's tasks: of asyncio's accepting, of connections, and of a text that is being made."""
        tasks = asyncio.all_tasks() - without - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if len(self._tasks) == MOST_CONNECTIONS:
            writer.transport.abort()
            return
        task = asyncio.ensure_future(self._converse(reader, writer))
        self._tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Here rather than in a `finally`, which a task that is cancelled before its first step doesn't reach.
            self._tasks.discard(task)
            writer.transport.abort()

        task.add_done_callback(ended)

    async def _converse(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            async with asyncio.timeout(SECONDS):
                await self._answer(reader, writer)
        except (OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            pass  # The client has gone, is too slow, or speaks no HTTP: there is no one to answer.

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        line = (await reader.readuntil(_END)).partition(b"\r\n")[0].decode("latin-1")
        method, _, rest = line.partition(" ")
        status, kind, body = await self._page(method, rest.partition(" ")[0].partition("?")[0])
        writer.write(
            f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: {kind}\r\n"
            f"Content-Length: {len(body)}\r\nCache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\n"
            "Connection: close\r\n\r\n".encode("latin-1")
        )
        if method != "HEAD":
            writer.write(body)
        writer.write_eof()
        await writer.drain()
        # Wait for the client's end, so that closing doesn't destroy what it hasn't read yet.
        while await reader.read(HEAD_BYTES):
            pass

    async def _page(self, method: str, path: str) -> tuple[int, str, bytes]:
        if method not in ("GET", "HEAD"):
            return 405, _TEXT, b"only GET and HEAD are served here\n"
        if path != PATH:
            return 404, _TEXT, f"there is no such page; there is {PATH}\n".encode()
        if self._rendering is None:
            self._rendering = asyncio.ensure_future(asyncio.to_thread(self._render))
            self._rendering.add_done_callback(self._rendered)
        try:
            # Shielded: others may wait for the same text.
            return 200, CONTENT_TYPE, await asyncio.shield(self._rendering)
        except Exception:
            return 500, _TEXT, b"the page could not be made; the job's log says why\n"

    def _rendered(self, rendering: asyncio.Future[bytes]) -> None:
        self._rendering = None
        error = None if rendering.cancelled() else rendering.exception()
        if error is not None:
            log.error("metrics could not be made", exc_info=error)


@contextmanager
def served(listener: str | None, render: Callable[[], bytes]) -> Iterator[Address | None]:
    """Serve metrics while the block runs; with None, and if the address can't be had, it runs without.

    A job must not end because of its metrics, so the latter is a warning.
    """
    address = None if listener is None else parse_address(listener)
    if address is None:
        yield None
        return
    server = MetricsServer(address, render)
    try:
        host, port = server.start()
    except OSError as error:
        log.warning("no metrics are served, %s can't be listened on: %s", listener, error.strerror or error)
        yield None
        return
    try:
        log.info("metrics are served at http://%s:%d%s", f"[{host}]" if ":" in host else host, port, PATH)
        if not is_loopback(host):
            log.warning(
                "anyone who reaches %s port %d reads this job's metrics, with the names of its topics",
                host,
                port,
            )
        yield host, port
    finally:
        server.close()


def check_listener(text: str) -> str | None:
    """The reason why a text is no address to serve metrics at; None if it is one."""
    return None if parse_address(text) else f"metrics_listener is {text!r}: HOST:PORT, or a port of 127.0.0.1"
