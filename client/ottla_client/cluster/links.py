"""The connections of a cluster: one an address and purpose, opened once for all who want it, with a back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from time import monotonic
from typing import TYPE_CHECKING

from ottla_client.connection import MAX_RESPONSE_BYTES, Connection
from ottla_client.deadline import Deadline
from ottla_client.errors import ClientError, ClosedError, ConnectError

from .backoff import Backoff
from .tasks import Tasks, joined

if TYPE_CHECKING:
    import ssl

CONNECT_SECONDS = 10.0
"""How long one attempt to connect may take, handshakes included (Java: socket.connection.setup.timeout.ms)."""


@dataclass(frozen=True, slots=True)
class LinkSettings:
    """What all connections of a cluster have in common. Times in seconds."""

    client_id: str
    connect_timeout: float
    max_idle: float
    backoff: Backoff
    ssl_context: ssl.SSLContext | None = None
    max_response_bytes: int = MAX_RESPONSE_BYTES


class Link:
    """The way to one address: its connection while there is one, and what became of the last attempt."""

    __slots__ = ("address", "connection", "error", "failures", "not_before", "opening", "reached")

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.error: Exception | None = None
        self.reached = False


class Links:
    """Keyed by whatever the cluster tells its connections apart by."""

    def __init__(self, settings: LinkSettings, lost: Callable[[Connection], None]) -> None:
        self._settings = settings
        self._lost = lost
        self._links: dict[Hashable, Link] = {}
        self._tasks = Tasks()
        self._closing: set[Connection] = set()
        self._closed = False

    def open_connection(self, key: Hashable) -> Connection | None:
        """The connection that is open now, if any."""
        link = self._links.get(key)
        if link is None or link.connection is None or link.connection.closed:
            return None
        return link.connection

    def error(self, key: Hashable) -> Exception | None:
        """What the last attempt failed with; None where it succeeded, or there was none."""
        link = self._links.get(key)
        return None if link is None else link.error

    def reached(self, key: Hashable) -> bool:
        """Whether a broker has ever answered at the address."""
        link = self._links.get(key)
        return link is not None and link.reached

    def resting(self, key: Hashable) -> bool:
        """Whether the back-off after a failure is still on."""
        link = self._links.get(key)
        return link is not None and link.not_before > monotonic()

    async def get(self, key: Hashable, address: tuple[str, int], deadline: Deadline) -> Connection:
        """The connection of ``key``, which leads to ``address``; opened where there is none.

        After failures the next attempt waits for its back-off. Raises ConnectError, NotABrokerError.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        link = self._links.get(key)
        if link is None or link.address != address:
            self.drop(key)
            link = self._links[key] = Link(address)
        if link.connection is not None and not link.connection.closed:
            return link.connection
        if link.opening is None:
            link.opening = self._tasks.start(self._open(link))
        try:
            return await joined(link.opening, deadline)
        except TimeoutError:
            host, port = address
            before = "" if link.error is None else f"; before that: {link.error}"
            raise ConnectError(f"{host}:{port} was not connected in time{before}") from link.error
        except ClosedError:
            if self._closed:
                raise
            host, port = address
            raise ConnectError(f"{host}:{port} is not the address any more") from None

    async def _open(self, link: Link) -> Connection:
        settings = self._settings
        host, port = link.address
        try:
            await asyncio.sleep(max(0.0, link.not_before - monotonic()))
            connection = await Connection.open(
                host,
                port,
                client_id=settings.client_id,
                timeout=settings.connect_timeout,
                ssl_context=settings.ssl_context,
                max_response_bytes=settings.max_response_bytes,
                max_idle=settings.max_idle,
            )
        except ClientError as error:
            link.error = error
            link.failures += 1
            link.not_before = monotonic() + settings.backoff.after(link.failures)
            raise
        finally:
            link.opening = None
        link.error = None
        link.reached = True
        link.failures = 0
        link.not_before = 0.0
        link.connection = connection
        connection.on_close = self._lost
        return connection

    def move(self, key: Hashable, to: Hashable) -> None:
        """Let the link of ``key`` be that of ``to``."""
        link = self._links.pop(key, None)
        if link is not None:
            self.drop(to)
            self._links[to] = link

    def drop(self, key: Hashable) -> None:
        """Close what there is for ``key``."""
        link = self._links.pop(key, None)
        if link is not None:
            if link.opening is not None:
                link.opening.cancel()
            if link.connection is not None:
                self._close(link.connection)

    def _close(self, connection: Connection) -> None:
        if connection.gone:
            return
        self._closing.add(connection)
        connection.on_close = self._closing.discard
        connection.close()

    def close(self) -> None:
        """Close all connections, and take up no more."""
        self._closed = True
        for key in tuple(self._links):
            self.drop(key)
        self._tasks.cancel()

    async def wait_closed(self) -> None:
        """Wait until all sockets are closed, after ``close``."""
        await self._tasks.ended()
        for connection in tuple(self._closing):
            await connection.wait_closed()
