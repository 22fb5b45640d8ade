"""A small HTTP server for pages that monitoring reads: GET and HEAD alone, one request per connection; h11 parses.

It trusts nothing that comes in: the head of a request has to arrive within :data:`HEAD_SECONDS` and be at most
:data:`HEAD_BYTES` long, and a body is never read. A client that doesn't take its response within :data:`SEND_SECONDS`
is dropped. Beyond :data:`MOST_CONNECTIONS`, a new connection takes the place of one that waits for its client, so that
silent clients don't keep a probe from being answered; it is closed at once if all others are being served. Of these,
one address has at most :data:`MOST_OF_ADDRESS`, or fewer by ``max.connections.per.ip``, in the same way.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from collections.abc import Awaitable, Callable, Collection, Mapping, Sequence
from contextlib import AbstractAsyncContextManager
from enum import IntEnum
from http import HTTPStatus
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import parse_qs

if TYPE_CHECKING:
    import socket

    import h11

HEAD_BYTES: Final = 8192
HEAD_SECONDS: Final = 10.0
PAGE_SECONDS: Final = 30.0
SEND_SECONDS: Final = 30.0
MOST_CONNECTIONS: Final = 32
MOST_OF_ADDRESS: Final = 16
_BACKLOG: Final = 16
"""Connections that wait to be accepted, all in the same turn of the event loop."""
_MOST_VALUES: Final = 16
_PARTS_A_TURN: Final = 5
"""Parts that are sent in a turn of the event loop; one of /metrics has up to 40 KB."""


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

    task: asyncio.Task[None]

    def __init__(self, host: str) -> None:
        self.host = host
        self.waits = _Waits.REQUEST


class HttpServer:
    """Serves pages on one address. Owned by the loop thread.

    Attributes:
        limit: the most connections of an address, if that is less than :data:`MOST_OF_ADDRESS`.
        is_too_early: counts a connection from an address, and says whether it exceeds that address's rate.
        sockets: those that listen.
        tasks: of connections, some of which have been dropped and end.
    """

    def __init__(
        self,
        pages: Pages,
        queries: Queries | None = None,
        *,
        failed: Callable[[str, Exception], object],
        timeout: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout,
    ) -> None:
        """``failed`` is called with the path of a page that can't be made; ``timeout`` belongs to the user's clock."""
        self.limit: Callable[[str], int] = lambda _host: MOST_OF_ADDRESS
        self.is_too_early: Callable[[str], bool] = lambda _host: False
        self.sockets: Sequence[socket.socket] = ()
        self.tasks: set[asyncio.Task[None]] = set()
        self._pages = pages
        self._queries = queries or {}
        self._failed = failed
        self._timeout = timeout
        self._server: asyncio.Server | None = None
        # In the order in which they came.
        self._open: dict[_Open, None] = {}

    @property
    def connections(self) -> int:
        """The number of open connections."""
        return len(self._open)

    async def start(
        self, host: str | None = None, port: int | None = None, *, sock: socket.socket | None = None
    ) -> None:
        """Accept connections at an address, or on a socket that listens. Raises OSError."""
        self._server = await asyncio.start_server(
            self._connected, host, port, sock=sock, limit=HEAD_BYTES, backlog=_BACKLOG
        )
        self.sockets = self._server.sockets

    async def close(self) -> None:
        """Stop accepting, and drop the connections."""
        if self._server is not None:
            self._server.close()
        for task in self.tasks:
            task.cancel()
        if self.tasks:
            await asyncio.wait(self.tasks)

    def _connected(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        # An IPv4 client of an IPv6 listener counts as the same client as on an IPv4 listener.
        host = str((writer.get_extra_info("peername") or ("",))[0]).removeprefix("::ffff:")
        if self.is_too_early(host) or not self._make_room(host):
            writer.transport.abort()
            return
        made = _Open(host)
        self._open[made] = None
        task = made.task = asyncio.ensure_future(self._converse(made, reader, writer))
        self.tasks.add(task)

        def ended(task: asyncio.Task[None]) -> None:
            # Here rather than in a `finally`, which a task that is cancelled before its first step doesn't reach.
            self._open.pop(made, None)
            self.tasks.discard(task)
            writer.transport.abort()

        task.add_done_callback(ended)

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

    async def _converse(
        self, made: _Open, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> None:
        # Imported here because it takes 16 ms, and many brokers are never asked.
        import h11

        http = h11.Connection(h11.SERVER, max_incomplete_event_size=HEAD_BYTES)
        head_only, room = False, HEAD_BYTES + 1
        try:
            try:
                async with self._timeout(HEAD_SECONDS):
                    while (request := http.next_event()) is h11.NEED_DATA:
                        data = await reader.read(room)
                        if not data:
                            return
                        room -= len(data)
                        http.receive_data(data)
            except h11.RemoteProtocolError as error:
                page = _refused(error)
            else:
                if not isinstance(request, h11.Request):
                    return
                made.waits = _Waits.SERVED
                head_only = request.method == b"HEAD"
                page = await self._page(request)
            made.waits = _Waits.TAKEN
            async with self._timeout(SEND_SECONDS):
                await _send(http, page, head_only, reader, writer)
        except (OSError, TimeoutError):
            pass  # The client has gone, or is too slow.

    async def _page(self, request: h11.Request) -> Page:
        if request.method not in (b"GET", b"HEAD"):
            return text_page(405, "only GET and HEAD are served here")
        path, _, query = request.target.decode("latin-1").partition("?")
        if not path.startswith("/"):
            return text_page(400, "a path is needed, which begins with /")
        make, answer = self._pages.get(path), self._queries.get(path)
        if make is None and answer is None:
            known = ", ".join((*self._pages, *self._queries))
            return text_page(404, f"there is no such page; there are {known}")
        try:
            values = _values(query) if answer is not None else {}
        except ValueError:
            return text_page(400, f"a query has at most {_MOST_VALUES} values")
        try:
            async with self._timeout(PAGE_SECONDS):
                if answer is not None:
                    return await answer(values)
                assert make is not None
                return await make()
        except TimeoutError:
            return text_page(503, "the page could not be made in time")
        except Exception as error:
            self._failed(path, error)
            return text_page(500, "the page could not be made; the log says why")


def _refused(error: h11.RemoteProtocolError) -> Page:
    if error.error_status_hint == HTTPStatus.REQUEST_HEADER_FIELDS_TOO_LARGE:
        return text_page(431, f"the request's head is longer than {HEAD_BYTES} bytes")
    return text_page(400, f"not an HTTP request: {error}")


async def _send(
    http: h11.Connection,
    page: Page,
    head_only: bool,
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
) -> None:
    """Send a page, and wait for the client's end, so that closing doesn't destroy what it hasn't read yet."""
    import h11

    headers = [
        ("Content-Type", page.content_type),
        ("Content-Length", str(sum(map(len, page.body)))),
        ("Cache-Control", "no-store"),
        ("X-Content-Type-Options", "nosniff"),
        ("Connection", "close"),
    ]
    if page.status == HTTPStatus.METHOD_NOT_ALLOWED:
        headers.append(("Allow", "GET, HEAD"))
    reason = HTTPStatus(page.status).phrase
    writer.write(http.send(h11.Response(status_code=page.status, reason=reason, headers=headers)) or b"")
    if not head_only:
        for number, part in enumerate(page.body, 1):
            writer.write(http.send(h11.Data(data=part)) or b"")
            await writer.drain()
            if number % _PARTS_A_TURN == 0:
                await asyncio.sleep(0)
    writer.write_eof()
    await writer.drain()
    while await reader.read(HEAD_BYTES):
        pass


def _values(query: str) -> dict[str, str]:
    """The first value of each name, as UTF-8. A head's bound is the query's bound. Raises ValueError for too many."""
    found = parse_qs(query, keep_blank_values=True, max_num_fields=_MOST_VALUES)
    return {name: values[0] for name, values in found.items()}
