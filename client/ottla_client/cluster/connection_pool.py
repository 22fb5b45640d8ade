"""The connections to a cluster: one per address and purpose, shared by all callers, with a back-off."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from time import monotonic

from ottla_client.connection import Connection
from ottla_client.deadline import Deadline
from ottla_client.errors import ClientError, ClosedError, ConnectError
from ottla_client.login import login_of
from ottla_client.settings import ConnectionSettings
from ottla_protocol.features import Features

from .backoff import Backoff
from .tasks import Tasks, joined

CONNECT_SECONDS = 10.0
"""Seconds for one attempt to connect, including handshakes (Java: socket.connection.setup.timeout.ms)."""


class Endpoint:
    """One address: its connection, if any, and the outcome of the last attempt."""

    __slots__ = ("address", "connection", "error", "failures", "not_before", "opening", "reached")

    def __init__(self, address: tuple[str, int]) -> None:
        self.address = address
        self.connection: Connection | None = None
        self.opening: asyncio.Task[Connection] | None = None
        self.failures = 0
        self.not_before = 0.0
        self.error: Exception | None = None
        self.reached = False


class ConnectionPool:
    """Keys are chosen by the cluster: a broker's id, or a tuple with a purpose."""

    def __init__(self, settings: ConnectionSettings, lost: Callable[[Connection], None]) -> None:
        """Raises ConfigurationError for TLS files that can't be read."""
        self._client_id = settings.client_id
        self._connect_timeout = min(CONNECT_SECONDS, settings.request_timeout)
        self._max_idle = settings.connections_max_idle_ms / 1000
        self._backoff = Backoff(
            settings.reconnect_backoff_ms / 1000, settings.reconnect_backoff_max_ms / 1000
        )
        self._ssl_context = settings.tls_context()
        self._login = login_of(settings)
        self._lost = lost
        self._endpoints: dict[Hashable, Endpoint] = {}
        self._tasks = Tasks()
        self._closing: set[Connection] = set()
        self._closed = False
        self.features = Features()
        """The newest that a broker has reported."""

    def open_connection(self, key: Hashable, address: tuple[str, int] | None = None) -> Connection | None:
        """The connection of ``key``, if it is open, and not to another address than this one."""
        endpoint = self._endpoints.get(key)
        if endpoint is None or endpoint.connection is None or endpoint.connection.closed:
            return None
        return endpoint.connection if address in (None, endpoint.address) else None

    @property
    def connection_count(self) -> int:
        """The number of open connections."""
        return sum(
            each.connection is not None and not each.connection.closed
            for each in list(self._endpoints.values())
        )

    def error(self, key: Hashable) -> Exception | None:
        """The error of the last attempt; None if it succeeded or none was made."""
        endpoint = self._endpoints.get(key)
        return None if endpoint is None else endpoint.error

    def reached(self, key: Hashable) -> bool:
        """Whether a broker has ever answered at the address."""
        endpoint = self._endpoints.get(key)
        return endpoint is not None and endpoint.reached

    def backing_off(self, key: Hashable) -> bool:
        """Whether a failure's back-off hasn't ended yet."""
        endpoint = self._endpoints.get(key)
        return endpoint is not None and endpoint.not_before > monotonic()

    async def get(self, key: Hashable, address: tuple[str, int], deadline: Deadline) -> Connection:
        """The connection of ``key`` to ``address``, opened if necessary.

        After a failure the next attempt waits for the back-off. Raises ConnectError, NotABrokerError.
        """
        if self._closed:
            raise ClosedError("the client is closed")
        endpoint = self._endpoints.get(key)
        if endpoint is None or endpoint.address != address:
            self.drop(key)
            endpoint = self._endpoints[key] = Endpoint(address)
        if endpoint.connection is not None and not endpoint.connection.closed:
            return endpoint.connection
        if endpoint.opening is None:
            endpoint.opening = self._tasks.start(self._open(endpoint))
        try:
            return await joined(endpoint.opening, deadline)
        except TimeoutError:
            host, port = address
            before = "" if endpoint.error is None else f"; before that: {endpoint.error}"
            raise ConnectError(f"{host}:{port} was not connected in time{before}") from endpoint.error
        except ClosedError:
            if self._closed:
                raise
            host, port = address
            raise ConnectError(f"{host}:{port} is no longer the broker's address") from None

    async def _open(self, endpoint: Endpoint) -> Connection:
        host, port = endpoint.address
        try:
            await asyncio.sleep(max(0.0, endpoint.not_before - monotonic()))
            connection = await Connection.open(
                host,
                port,
                client_id=self._client_id,
                timeout=self._connect_timeout,
                ssl_context=self._ssl_context,
                login=self._login,
                max_idle=self._max_idle,
            )
        except ClientError as error:
            endpoint.error = error
            endpoint.failures += 1
            endpoint.not_before = monotonic() + self._backoff.after(endpoint.failures)
            raise
        finally:
            endpoint.opening = None
        self.features = max(self.features, connection.features, key=lambda each: each.epoch)
        endpoint.error = None
        endpoint.reached = True
        endpoint.failures = 0
        endpoint.not_before = 0.0
        endpoint.connection = connection
        connection.on_close = self._lost
        return connection

    def move(self, key: Hashable, to: Hashable) -> None:
        endpoint = self._endpoints.pop(key, None)
        if endpoint is not None:
            self.drop(to)
            self._endpoints[to] = endpoint

    def drop(self, key: Hashable) -> None:
        """Close the connection of ``key``, if any."""
        endpoint = self._endpoints.pop(key, None)
        if endpoint is not None:
            if endpoint.opening is not None:
                endpoint.opening.cancel()
            if endpoint.connection is not None:
                self._close(endpoint.connection)

    def _close(self, connection: Connection) -> None:
        if connection.gone:
            return
        self._closing.add(connection)
        connection.on_close = self._closing.discard
        connection.close()

    def close(self) -> None:
        """Close all connections and open no new ones."""
        self._closed = True
        for key in tuple(self._endpoints):
            self.drop(key)
        self._tasks.cancel()

    async def wait_closed(self) -> None:
        """Wait until all sockets are closed, after ``close``."""
        await self._tasks.ended()
        for connection in tuple(self._closing):
            await connection.wait_closed()
