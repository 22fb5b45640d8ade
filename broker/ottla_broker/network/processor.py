"""A processor: the owner of a fixed share of a listener's connections."""

from __future__ import annotations

import asyncio
import select
import socket
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice
from typing import TYPE_CHECKING

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import get_logger
from ottla_broker.network.backlog import Backlog
from ottla_broker.network.connection import Connection
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.request_memory import BufferPool, RequestMemory
from ottla_broker.network.service import Service
from ottla_broker.tasks import TimeSlice

if TYPE_CHECKING:
    from ottla_broker.network.service import Principal
    from ottla_broker.network.tls_handshake import TlsListener
    from ottla_broker.network.tls_socket import TlsSocket

_log = get_logger()

LOOK_SECONDS = 10.0
"""The longest time between two looks for connections to close, in seconds."""
POLLED_CONNECTIONS = 500
"""Connections that are looked at in one turn of the event loop for whether they were reset."""
SCRATCH_BYTES = 256 * 1024
"""The buffer that all connections of a processor receive into."""


@dataclass(frozen=True, slots=True)
class SocketSettings:
    """The configuration of sockets; sizes in bytes, -1 for the system's default.

    Attributes:
        max_first_bytes: the largest request of a client that has to authenticate first; 0 if clients needn't.
    """

    max_request_bytes: int
    max_idle_ms: int
    max_parked: int
    send_buffer_bytes: int
    receive_buffer_bytes: int
    max_first_bytes: int = 0


class Processor:
    """Serves its connections, and closes those that are idle or stalled.

    Owned by the loop thread.
    """

    def __init__(
        self,
        number: int,
        listener: str,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        service: Service,
        quotas: ConnectionQuotas,
        memory: RequestMemory,
        backlog: Backlog,
        settings: SocketSettings,
        tls: TlsListener | None = None,
    ) -> None:
        self.number = number
        self.listener = listener
        self.loop = loop
        self.clock = clock
        self.service = service
        self.quotas = quotas
        self.memory = memory
        self.backlog = backlog
        self.settings = settings
        self.tls = tls
        self.max_request_bytes = settings.max_request_bytes
        self.authenticates = settings.max_first_bytes > 0
        self.max_first_bytes = min(settings.max_first_bytes, settings.max_request_bytes)
        self.max_parked = settings.max_parked
        self.parked = 0
        self.scratch = memoryview(bytearray(SCRATCH_BYTES))
        self.pool = BufferPool()
        self.connections: set[Connection] = set()
        self.received_bytes = 0
        self.sent_bytes = 0
        self.sendfile_bytes = 0
        # Connections so far.
        self.accepted = 0
        self._timer: TimerHandle | None = None

    def start(self) -> None:
        """Start looking for idle and stalled connections."""
        idle = self.settings.max_idle_ms / 1000
        period = max(0.05, min(idle / 4, LOOK_SECONDS)) if idle > 0 else LOOK_SECONDS
        self._timer = self.clock.call_later(period, self._look, idle, period)

    def assign(self, sock: socket.socket, host: str, port: int, local: str | None = None) -> None:
        """Serve an accepted socket, which the quotas have counted in.

        ``local`` is its own address and port; None: the socket is asked.
        """
        if local is None:
            try:
                local = "{}:{}".format(*sock.getsockname()[:2])
            except OSError as error:
                _log.warning("connection lost at once", client=f"{host}:{port}", error=str(error))
                self.quotas.leave(self.listener, host)
                sock.close()
                return
        self.accepted += 1
        # Kafka's form: both ends, the processor, and a number, because addresses are used again.
        name = f"{local}-{host}:{port}-{self.number}-{self.accepted}"
        if self.tls is None:
            self._serve(Connection(self, sock, host, name, self.listener))
        else:
            self._shake_hands(sock, host, name, self.tls)

    def _shake_hands(self, sock: socket.socket, host: str, name: str, tls: TlsListener) -> None:
        from ottla_broker.network.tls_connection import TlsConnection
        from ottla_broker.network.tls_handshake import Handshake

        def done(channel: TlsSocket, principal: Principal) -> None:
            self._serve(TlsConnection(self, channel, host, name, self.listener, principal))

        handshake = Handshake(
            sock, host, name, tls, self.loop, self.clock, done, lambda: self.quotas.leave(self.listener, host)
        )
        try:
            handshake.start()
        except OSError as error:
            handshake.close(f"it cannot be watched: {error.strerror or error}")

    def _serve(self, connection: Connection) -> None:
        self.connections.add(connection)
        try:
            connection.start()
        except OSError as error:
            connection.close(f"it cannot be watched: {error.strerror or error}")

    def _look(self, idle: float, period: float) -> None:
        self._timer = self.clock.call_later(period, self._look, idle, period)
        connections = list(self.connections)
        self._find_reset(iter(connections), self.clock.monotonic() - period, period)
        self._look_at(iter(connections), idle)

    def _find_reset(self, connections: Iterator[Connection], since: float, period: float) -> None:
        """Find connections that were reset right after their last bytes: uvloop reports both once, as bytes to read.

        Looked at are those that have been quiet ``since`` then, but not for much longer: they were looked at before.
        They may be very many, so each turn of the event loop looks at POLLED_CONNECTIONS.
        """
        poll = select.poll()
        now = list(islice(connections, POLLED_CONNECTIONS))
        quiet = {
            c.fd: c for c in now if not c.closed and c.last_active > since - 2 * period and c.is_quiet(since)
        }
        for fd in quiet:
            # Errors are reported without being asked for.
            poll.register(fd, 0)
        for fd, _ in poll.poll(0):
            quiet[fd].read_anew()
        if len(now) == POLLED_CONNECTIONS:
            self.loop.call_soon(self._find_reset, connections, since, period)

    def _look_at(self, connections: Iterator[Connection], idle: float) -> None:
        """Close those that are to be closed: very many, if clients flood, so in several turns of the event loop."""
        now, time_slice = self.clock.monotonic(), TimeSlice(self.clock)
        for connection in connections:
            if connection.closed:
                continue
            if 0 < idle < now - connection.last_active and not connection.waits:
                connection.close(None)
                _log.debug("idle connection closed", connection=connection.id, client_id=connection.client_id)
            elif connection.is_stalled(now):
                connection.close("a request has begun and doesn't go on")
            elif connection.is_late(now):
                connection.close("the client has not authenticated in time")
            else:
                continue
            if time_slice.is_over:
                self.loop.call_soon(self._look_at, connections, idle)
                return

    def forget(self, connection: Connection) -> None:
        """Called by a connection that has closed."""
        self.connections.discard(connection)
        self.quotas.leave(self.listener, connection.client_host)

    def stop_reading(self) -> None:
        """Read no more requests; pending ones are still answered."""
        for connection in self.connections:
            connection.stop_reading()

    def cut(self) -> None:
        """Shut every socket down, on any thread: clients notice at once, the loop when it turns."""
        for connection in list(self.connections):
            connection.cut()

    def close(self) -> None:
        """Close every connection."""
        if self._timer is not None:
            self._timer.cancel()
        for connection in list(self.connections):
            connection.close(None)
