"""A small HTTP server for pages that monitoring reads: GET and HEAD alone, one request per connection.

It trusts nothing that comes in: the head of a request has to arrive within :data:`HEAD_SECONDS` and be at most
:data:`HEAD_BYTES` long, and a body is never read. A client that doesn't take its response within :data:`SEND_SECONDS`
is dropped. Beyond :data:`MOST_CONNECTIONS`, a new connection takes the place of one that waits for its client, so that
silent clients don't keep a probe from being answered; it is closed at once if all others are being served. Of these,
one address has at most :data:`MOST_OF_ADDRESS`, or fewer by ``max.connections.per.ip``, in the same way.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import suppress
from enum import IntEnum
from http import HTTPStatus
from typing import Any, Final, NamedTuple
from urllib.parse import parse_qs

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.tasks import unhurried

HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 10.0
PAGE_SECONDS: Final = 30.0
SEND_SECONDS: Final = 30.0
MOST_CONNECTIONS: Final = 32
MOST_OF_ADDRESS: Final = 16
_BACKLOG: Final = 16
"""Connections that wait to be accepted, all in the same turn of the event loop."""
_MOST_VALUES: Final = 16
_END: Final = b"\r\n\r\n"
_PARTS_A_TURN: Final = 5
"""Parts that are sent in a turn of the event loop; one of /metrics has up to 40 KB."""

_log = get_logger()


class Page(NamedTuple):
    """A response. The parts of its body are sent one after another."""

    status: int
    content_type: str
    body: Sequence[bytes]


Pages = Mapping[str, Callable[[], Awaitable[Page]]]
"""What makes each page, by its path."""

Queries = Mapping[str, Callable[[Mapping[str, str]], Awaitable[Page]]]
"""The same for pages that look at their query: the first value of each name."""


def json_page(status: int, document: Mapping[str, Any]) -> Page:
    """A page with a JSON document."""
    return Page(status, "application/json", [json.dumps(document, indent=2).encode() + b"\n"])


def text_page(status: int, text: str) -> Page:
    """A page with one line of text."""
    return Page(status, "text/plain; charset=utf-8", [text.encode() + b"\n"])


class _Waits(IntEnum):
    """Whom a connection waits for. Those for clients are dropped to make room, the first kind first."""

    REQUEST = 0
    TAKEN = 1
    SERVED = 2


class _Open:
    """An open connection."""

    __slots__ = ("host", "task", "waits")

    def __init__(self, task: asyncio.Task[Any], host: str) -> None:
        self.task = task
        self.host = host
        self.waits = _Waits.REQUEST


class HttpServer:
    """Serves pages on one listening socket. Owned by the loop thread.

    Attributes:
        limit: the most connections of an address, if that is less than :data:`MOST_OF_ADDRESS`.
        is_too_early: counts a connection from an address, and says whether it exceeds that address's rate.
    """

    def __init__(self, clock: Clock, pages: Pages, queries: Queries | None = None) -> None:
        self.limit: Callable[[str], int] = lambda _host: MOST_OF_ADDRESS
        self.is_too_early: Callable[[str], bool] = lambda _host: False
        self._clock = clock
        self._pages = pages
        self._queries = queries or {}
        self._server: asyncio.Server | None = None
        self._tasks: set[asyncio.Task[Any]] = set()
        # In the order in which they came.
        self._open: dict[_Open, None] = {}

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    async def start(self, sock: socket.socket) -> None:
        """Begin to accept connections on a socket that listens."""
        self._server = await asyncio.start_server(
            self._connected, sock=sock, limit=HEAD_BYTES, backlog=_BACKLOG
        )

    async def close(self) -> None:
        """Stop accepting, and drop the connections."""
        if self._server is not None:
            self._server.close()
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    async def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        self._tasks.add(task)
        # An IPv4 client of an IPv6 listener counts as the same client as on an IPv4 listener.
        host = str((writer.get_extra_info("peername") or ("",))[0]).removeprefix("::ffff:")
        made = _Open(task, host)
        try:
            if not self.is_too_early(host) and self._make_room(host):
                self._open[made] = None
                await self._serve(made, reader, writer)
        except (OSError, TimeoutError, asyncio.CancelledError):
            # The client has gone, is too slow, or has made room for another. A task that ends as cancelled would be a
            # traceback in the log, because asyncio's streams ask it for its exception.
            pass
        finally:
            self._open.pop(made, None)
            self._tasks.discard(task)
            writer.transport.abort()

    def _make_room(self, host: str) -> bool:
        """Whether one more connection of an address may be served.

        If there are too many, one that waits for its client is dropped: the oldest of the address that has the most.
        """
        most = min(MOST_OF_ADDRESS, self.limit(host))
        same = [each for each in self._open if each.host == host]
        if len(same) >= most:
            return most > 0 and self._drop_one(same)
        return len(self._open) < MOST_CONNECTIONS or self._drop_one(self._open)

    def _drop_one(self, among: Collection[_Open]) -> bool:
        """Drop a connection that waits for its client. False if there is none."""
        waits = min(each.waits for each in among)
        if waits is _Waits.SERVED:
            return False
        idle = [each for each in among if each.waits is waits]
        by_host = Counter(each.host for each in idle)
        oldest = max(idle, key=lambda each: by_host[each.host])
        del self._open[oldest]
        oldest.task.cancel()
        return True

    async def _serve(self, made: _Open, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head_only = False
        try:
            async with self._clock.timeout(HEAD_SECONDS):
                head = await reader.readuntil(_END)
        except asyncio.IncompleteReadError:
            return
        except asyncio.LimitOverrunError:
            page = text_page(431, f"the request's head is longer than {HEAD_BYTES} bytes")
        else:
            method, path, query = _parse(head)
            head_only = method == b"HEAD"
            made.waits = _Waits.SERVED
            page = await self._page(method, path, query)
        made.waits = _Waits.TAKEN
        async with self._clock.timeout(SEND_SECONDS):
            writer.write(_head(page))
            if not head_only:
                async for part in unhurried(page.body, _PARTS_A_TURN):
                    writer.write(part)
                    await writer.drain()
            writer.write_eof()
            await writer.drain()
            # Wait for the client's end, so that closing doesn't destroy what it hasn't read yet.
            with suppress(asyncio.IncompleteReadError):
                while await reader.read(HEAD_BYTES):
                    pass

    async def _page(self, method: bytes, path: str, query: str) -> Page:
        if not method:
            return text_page(400, "not an HTTP request")
        if method not in (b"GET", b"HEAD"):
            return text_page(405, "only GET and HEAD are served here")
        make, answer = self._pages.get(path), self._queries.get(path)
        if make is None and answer is None:
            known = ", ".join((*self._pages, *self._queries))
            return text_page(404, f"there is no such page; there are {known}")
        try:
            values = _values(query) if answer is not None else {}
        except ValueError:
            return text_page(400, f"a query has at most {_MOST_VALUES} values")
        try:
            async with self._clock.timeout(PAGE_SECONDS):
                if answer is not None:
                    return await answer(values)
                assert make is not None
                return await make()
        except TimeoutError:
            return text_page(503, "the page could not be made in time")
        except Exception as error:
            _log.error("a page could not be made", path=path, exc_info=error)
            return text_page(500, "the page could not be made; the broker's log says why")


def _parse(head: bytes) -> tuple[bytes, str, str]:
    """Method, path and query of a request; empty if it isn't HTTP/1."""
    parts = head.partition(b"\r\n")[0].split(b" ")
    if len(parts) != 3 or not parts[2].startswith(b"HTTP/1.") or not parts[1].startswith(b"/"):
        return b"", "", ""
    path, _, query = parts[1].decode("latin-1").partition("?")
    return parts[0], path, query


def _values(query: str) -> dict[str, str]:
    """The first value of each name, as UTF-8. A head's bound is the query's bound. Raises ValueError for too many."""
    found = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_VALUES)
    return {name: values[0] for name, values in found.items()}


def _head(page: Page) -> bytes:
    allow = "Allow: GET, HEAD\r\n" if page.status == HTTPStatus.METHOD_NOT_ALLOWED else ""
    return (
        f"HTTP/1.1 {page.status} {HTTPStatus(page.status).phrase}\r\n"
        f"Content-Type: {page.content_type}\r\n"
        f"Content-Length: {sum(map(len, page.body))}\r\n"
        f"{allow}Cache-Control: no-store\r\nX-Content-Type-Options: nosniff\r\nConnection: close\r\n\r\n"
    ).encode("latin-1")
