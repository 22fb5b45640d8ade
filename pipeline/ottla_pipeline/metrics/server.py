"""Serves a job's ``/metrics`` over plain HTTP, from a thread of its own.

Scrapers that come while a text is being made share it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from collections.abc import Set as AbstractSet
from concurrent.futures import Future
from contextlib import contextmanager
from threading import Thread
from typing import Final

from ottla_protocol.aio.http_server import HttpServer, Page
from ottla_protocol.loopback import is_loopback
from ottla_protocol.prometheus import CONTENT_TYPE, parse_address

log = logging.getLogger("ottla_pipeline")

PATH: Final = "/metrics"

Address = tuple[str, int]


class MetricsServer:
    """``render`` makes the text of a scrape; it is called on another thread, one call at a time."""

    def __init__(self, address: Address, render: Callable[[], bytes]) -> None:
        self._wanted = address
        self._render = render
        self._thread: Thread | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._stop: asyncio.Event | None = None
        self._rendering: asyncio.Task[bytes] | None = None
        self._http = HttpServer({PATH: self._page}, failed=self._failed)

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
        http = self._http
        await http.start(*self._wanted)
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        shown = http.sockets[0].getsockname()
        started.set_result((shown[0], shown[1]))
        await self._stop.wait()
        # asyncio hands over a connection some turns after accepting it, and not at all once the server is closed:
        # accept none from here on, and close when those are here.
        for listening in http.sockets:
            self._loop.remove_reader(listening.fileno())
        await self._ended(without=http.tasks)
        await http.close()
        await self._ended()

    async def _ended(self, without: AbstractSet[asyncio.Task[None]] = frozenset()) -> None:
        """Wait for the loop's tasks: of asyncio's accepting, of connections, and of a text that is being made."""
        tasks = asyncio.all_tasks() - without - {asyncio.current_task()}
        if tasks:
            await asyncio.wait(tasks)

    async def _page(self) -> Page:
        if self._rendering is None:
            self._rendering = asyncio.create_task(asyncio.to_thread(self._render))
            self._rendering.add_done_callback(self._rendered)
        # Shielded: others may wait for the same text.
        return Page(200, CONTENT_TYPE, [await asyncio.shield(self._rendering)])

    def _rendered(self, rendering: asyncio.Task[bytes]) -> None:
        self._rendering = None
        if not rendering.cancelled():
            # Retrieved, in case every scraper has gone.
            rendering.exception()

    def _failed(self, path: str, error: Exception) -> None:
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
