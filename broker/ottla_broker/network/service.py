"""The interface between sockets and the meaning of requests."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any, Final, NamedTuple, Protocol

from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.network.pending_response import PendingResponse


class Principal(NamedTuple):
    """A client's identity: ``User:ANONYMOUS`` until it has authenticated."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS: Final = Principal("User", "ANONYMOUS")


class Known(Protocol):
    """A connection, as far as it says whose it is."""

    principal: Principal

    @property
    def client_host(self) -> str: ...


def client_of(connection: Known) -> Principal | str:
    """Return who takes turns with other clients: what the client has proved to be, or its address."""
    principal = connection.principal
    return client_at(connection.client_host) if principal == ANONYMOUS else principal


def client_at(host: str) -> str:
    """Return who takes turns at an address: a host has a whole /64 of IPv6, so those addresses are one client's."""
    return _network(host) if ":" in host else host


@lru_cache(1024)
def _network(host: str) -> str:
    from ipaddress import IPv6Network

    return str(IPv6Network((host.partition("%")[0], 64), strict=False))


class ClientConnection(Protocol):
    """The connection that a request came by.

    Attributes:
        client_id: the name in the client's last request; for logs.
        id: unique among the connections of this broker.
        principal: the identity that the connection has proved; a client id proves nothing.
        client_host: the client's address.
        age: when it was accepted, and since when it is known to be in use.
        listener: the name of the listener that accepted it.
        authenticated: whether requests are served; false until the client of a listener with SASL has logged in.
        session: what the service keeps of the login.
        on_close: called when the connection has closed; by key, so that one can be replaced.
        waiting_since: since when the request that is being served has waited, its last byte received, on the monotonic
            clock; 0 if it is served as soon as it was read.
    """

    client_id: str | None
    principal: Principal
    authenticated: bool
    session: Any
    on_close: dict[object, Callable[[], None]]
    waiting_since: float

    @property
    def id(self) -> str: ...
    @property
    def client_host(self) -> str: ...
    @property
    def listener(self) -> str: ...
    @property
    def age(self) -> ConnectionAge: ...
    def throttle(self, seconds: float) -> None:
        """Read nothing for a time; responses are still sent."""
        ...

    def begin_long(self) -> None:
        """Read nothing, and keep the request's memory counted, until :meth:`end_long`."""
        ...

    def end_long(self) -> None:
        """Called once after :meth:`begin_long`, also if the connection has closed."""
        ...

    def has_left(self) -> bool:
        """Whether the client is gone, while nothing is read from it. If so, the connection is closed."""
        ...

    @property
    def busy(self) -> bool: ...
    def stop_reading(self) -> None: ...
    def close(self, reason: str | None) -> None: ...


Parts = list[object]
"""One whole response with its length prefix: bytes-like objects, file slices and streams, sent in order."""


Reply = Parts | PendingResponse | None


class Service(Protocol):
    """Serves the frames that connections receive."""

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        """Answer one request.

        ``frame`` is the request without its length prefix, valid until this returns. The reply is a finished response,
        a pending one, or ``None`` for a request without a response.

        Raises:
            CloseConnection: the connection is to be closed.
        """
        ...
