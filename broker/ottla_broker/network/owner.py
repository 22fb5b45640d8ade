"""The interfaces between a connection, its parts, and the processor that it belongs to."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from ottla_broker.clock import Clock
from ottla_broker.network.backlog import Backlog, Waiting
from ottla_broker.network.request_memory import BufferPool, RequestMemory
from ottla_broker.network.service import ClientConnection, Service


class Channel(Protocol):
    """The calls of a non-blocking socket that a connection uses; a TLS connection has others behind them."""

    def fileno(self) -> int: ...
    def recv_into(self, buffer: memoryview, size: int = 0, /) -> int: ...
    def send(self, data: memoryview, /) -> int: ...
    def sendmsg(
        self, buffers: list[bytes | bytearray | memoryview], ancillary: Any, flags: int, /
    ) -> int: ...
    def shutdown(self, how: int, /) -> None: ...
    def close(self) -> None: ...


class Owner(Protocol):
    """The processor that a connection belongs to.

    Attributes:
        backlog: those that wait for another turn.
        scratch: the buffer that its connections share.
        max_request_bytes: the largest frame that is accepted.
        max_first_bytes: the same until the client has authenticated.
        authenticates: whether clients must authenticate before anything else.
        max_parked: requests of one connection that may wait for their answers.
        parked: how many of all connections wait.
        received_bytes, sent_bytes: by all its connections so far; ``sendfile_bytes`` of the latter by sendfile.
    """

    loop: asyncio.AbstractEventLoop
    clock: Clock
    service: Service
    memory: RequestMemory
    backlog: Backlog
    pool: BufferPool
    scratch: memoryview
    max_request_bytes: int
    max_first_bytes: int
    authenticates: bool
    max_parked: int
    parked: int
    received_bytes: int
    sent_bytes: int
    sendfile_bytes: int

    def forget(self, connection: Any) -> None:
        """Called by a connection that has closed."""
        ...


class Ends(ClientConnection, Waiting, Protocol):
    """A connection, as its reader and its writer see it.

    Attributes:
        closed: whether it has closed; nothing is read or sent any more.
        last_active: when it was last in use, on the monotonic clock.
        processor: whose it is.
        fd: the descriptor of its socket.
        sock: the socket.
    """

    closed: bool
    last_active: float
    processor: Owner
    sock: Channel
    fd: int

    def on_written(self) -> None:
        """Called when responses wait in the writer, or some of those that waited have gone out."""
        ...

    @property
    def taken(self) -> int:
        """The bytes of answers that the client has taken so far."""
        ...

    def on_response_ready(self) -> None:
        """Called when a pending response is ready."""
        ...

    def close_on_error(self, error: Exception) -> None:
        """Close after an error in receiving, serving or sending."""
        ...
