"""``coordinator.listener``: the connections of consumers that register with the 2012 coordinator.

It trusts nothing that comes in. A frame's size is checked before its bytes are kept; a connection that has not
registered must send a whole request within :data:`REQUEST_SECONDS`, is closed when it idles, and must have registered
within :data:`REGISTERED_SECONDS`. Beyond ``coordinator.max.consumers`` and some for questions, a new connection takes
the place of the oldest one that has not registered, and is closed if all have. ``max.connections.per.ip`` counts these
connections with those of the other listeners. What is pushed to a consumer that doesn't read is bounded, because a
request that isn't answered is followed by no other before the consumer is given up. Of messages that come in one go,
some are served in each turn of the event loop, and no question while answers wait to be sent.
"""

from __future__ import annotations

import asyncio
import socket
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Any, Final, Protocol, cast

from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.events import get_logger
from ottla_broker.log.heard_connections import ConnectionAge
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.service import ANONYMOUS, Principal
from ottla_broker.tasks import Tasks
from ottla_protocol.errors import KafkaError, ProtocolError
from ottla_protocol.push import (
    MAX_REGISTRATION,
    ClusterMetadataRequest,
    ClusterMetadataResponse,
    FrameReader,
    PingResponse,
    RegisterConsumerRequest,
    RegisterConsumerResponse,
    StartFetcherResponse,
    StopFetcherResponse,
    decode_from_consumer,
)

_log = get_logger()

REQUEST_SECONDS: Final = 30.0
"""How long a connection may take until its consumer has registered, or between two questions before that."""
REGISTERED_SECONDS: Final = 300.0
"""How long a connection may ask questions without registering a consumer."""
MORE_CONNECTIONS: Final = 100
"""Connections beyond coordinator.max.consumers, for consumers that ask which broker is the coordinator."""
MAX_UNSENT: Final = 64 << 20
"""A consumer is dropped when this many bytes wait for it: the shares of a large group are that large."""
MAX_UNSENT_BEFORE: Final = 64 << 10
"""The same for a connection that has not registered. Nothing is served to it while a quarter of that waits."""
AT_ONCE: Final = 100
"""Messages of one connection that are served in one turn of the event loop."""
BYTES_AT_ONCE: Final = 64 << 10
"""And their bytes, beyond the first message."""
_QUESTION: Final = ClusterMetadataRequest().encode()[4:]
LISTENER: Final = "COORDINATOR"
"""The listener's name in logs and to the authorizer."""


class PushService(Protocol):
    """The service for the messages."""

    def cluster_metadata(self) -> ClusterMetadataResponse: ...
    async def register(self, channel: PushConnection, request: RegisterConsumerRequest) -> None:
        """Raises KafkaError."""

    def registered(self, channel: PushConnection) -> None:
        """The answer to a registration has been sent."""

    def handle(
        self, channel: PushConnection, response: PingResponse | StopFetcherResponse | StartFetcherResponse
    ) -> None: ...
    def disconnected(self, channel: PushConnection) -> None: ...


class PushListener:
    """Owned by the loop thread.

    Attributes:
        connections: those that are open.
    """

    def __init__(
        self, clock: Clock, service: PushService, max_connections: int, quotas: ConnectionQuotas
    ) -> None:
        self.connections: set[PushConnection] = set()
        self.tasks = Tasks()
        self.clock = clock
        self.service = service
        self._max_connections = max_connections
        self._quotas = quotas
        # In the order in which they came.
        self._unregistered: dict[PushConnection, None] = {}
        self._server: asyncio.Server | None = None
        self._serial = 0

    async def start(self, sock: socket.socket, backlog: int = 100) -> None:
        """Begin to accept connections on a socket that listens; ``backlog`` of them may wait."""
        self._server = await asyncio.get_running_loop().create_server(
            lambda: PushConnection(self), sock=sock, backlog=backlog
        )

    async def close(self) -> None:
        """Stop accepting, and close all connections."""
        if self._server is not None:
            self._server.close()
        for connection in tuple(self.connections):
            connection.close("")
        await self.tasks.close()

    def admit(self, connection: PushConnection) -> int:
        """Count a connection; returns its number. Raises ProtocolError if there are too many."""
        if not self._quotas.admit_aside(connection.client_host):
            raise ProtocolError("there are too many connections from its address (max.connections.per.ip)")
        if len(self.connections) >= self._max_connections:
            oldest = next((each for each in self._unregistered if not each.is_registering), None)
            if oldest is None:
                self._quotas.leave_aside(connection.client_host)
                raise ProtocolError("there are too many connections (coordinator.max.consumers)")
            oldest.close("others need its place, and it has not registered")
        self.connections.add(connection)
        self._unregistered[connection] = None
        self._serial += 1
        return self._serial

    def registered(self, connection: PushConnection) -> None:
        """A connection keeps its place."""
        self._unregistered.pop(connection, None)

    def leave(self, connection: PushConnection) -> None:
        """A connection has closed; nothing happens if it wasn't admitted."""
        if connection in self.connections:
            self.connections.remove(connection)
            self._unregistered.pop(connection, None)
            self._quotas.leave_aside(connection.client_host)


class PushConnection(asyncio.Protocol):
    """One connection; a channel of the coordinator once its consumer has registered."""

    __slots__ = (
        "_frames",
        "_listener",
        "_reader",
        "_registered",
        "_registering",
        "_serving",
        "_timer",
        "_transport",
        "_unsent",
        "age",
        "authenticated",
        "client_host",
        "client_id",
        "id",
        "listener",
        "on_close",
        "peer",
        "principal",
        "session",
        "waiting_since",
    )

    busy = False

    def __init__(self, listener: PushListener) -> None:
        self._listener = listener
        # Messages that wait for a turn: those of one read.
        self._frames: deque[bytes] = deque()
        self._reader = FrameReader(MAX_REGISTRATION)
        self._registered = False
        self._registering = False
        self._serving = False
        # Whether the client doesn't read what it is sent.
        self._unsent = False
        self._timer: TimerHandle | None = None
        self._transport: asyncio.Transport | None = None
        self.authenticated = True
        self.client_host = ""
        self.client_id: str | None = None
        self.age = ConnectionAge(0.0)
        self.id = ""
        self.listener = LISTENER
        self.on_close: dict[object, Callable[[], None]] = {}
        self.peer = ""
        self.principal: Principal = ANONYMOUS
        self.session: Any = None
        self.waiting_since = 0.0

    @property
    def limit(self) -> int:
        """The most bytes of the next message."""
        return self._reader.limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._reader.limit = limit

    @property
    def is_registering(self) -> bool:
        """Whether a registration is under way."""
        return self._registering

    def begin_long(self) -> None:
        """See :meth:`.ClientConnection.begin_long`."""
        if self._transport is not None:
            self._transport.pause_reading()

    def end_long(self) -> None:
        """See :meth:`.ClientConnection.end_long`."""
        if self._transport is not None and not self._transport.is_closing():
            self._transport.resume_reading()

    def has_left(self) -> bool:
        """See :meth:`.ClientConnection.has_left`."""
        return self._transport is None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # uvloop's transports are not asyncio's by class.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(MAX_UNSENT_BEFORE // 4)
        host, port = transport.get_extra_info("peername", ("?", 0))[:2]
        self.client_host = host
        self.peer = f"{host}:{port}"
        try:
            number = self._listener.admit(self)
        except ProtocolError as error:
            self.close(str(error))
            return
        self.id = f"{LISTENER}-{number}"
        self.age = ConnectionAge(self._listener.clock.monotonic())
        self._wait_for_request()

    def _wait_for_request(self) -> None:
        self._stop_waiting()
        clock = self._listener.clock
        left = self.age.accepted_at + REGISTERED_SECONDS - clock.monotonic()
        seconds = min(REQUEST_SECONDS, max(0.0, left))
        self._timer = clock.call_later(seconds, self.close, "it has not registered in time")

    def _stop_waiting(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def data_received(self, data: bytes) -> None:
        try:
            self._frames += self._reader.feed(data)
        except ProtocolError as error:
            self._refuse(error)
            return
        if not self._serving:
            self._serve_some()

    def _serve_some(self) -> None:
        """Serve the messages of one turn; nothing is read while others wait."""
        self._serving = False
        frames = self._frames
        left = BYTES_AT_ONCE
        try:
            for _ in range(min(AT_ONCE, len(frames))):
                if self._transport is None or left <= 0 or self._waits(frames[0]):
                    break
                frame = frames.popleft()
                left -= len(frame)
                self._serve(frame)
        except ProtocolError as error:
            self._refuse(error)
        transport = self._transport
        if transport is None:
            frames.clear()
        elif not frames:
            transport.resume_reading()
        else:
            transport.pause_reading()
            if not self._waits(frames[0]):
                self._serve_soon()

    def _waits(self, frame: bytes) -> bool:
        """Whether a message must wait until answers have been sent: one that is answered."""
        return self._unsent and (not self._registered or frame.startswith(_QUESTION))

    def _serve_soon(self) -> None:
        if not self._serving:
            self._serving = True
            asyncio.get_running_loop().call_soon(self._serve_some)

    def _refuse(self, error: ProtocolError) -> None:
        self.close(f"it sent a message that can't be read: {error}")

    def pause_writing(self) -> None:
        """Answers wait to be sent."""
        self._unsent = True

    def resume_writing(self) -> None:
        """The client reads on."""
        self._unsent = False
        if self._frames:
            self._serve_soon()

    def _serve(self, frame: bytes) -> None:
        message = decode_from_consumer(frame)
        service = self._listener.service
        if isinstance(message, ClusterMetadataRequest):
            if self._timer is not None:
                self._wait_for_request()
            self.send(service.cluster_metadata().encode())
        elif isinstance(message, RegisterConsumerRequest):
            if self._registering:
                raise ProtocolError("a second registration came before the first one was answered")
            self._registering = True
            self.client_id = message.consumer_id[:249]
            self._listener.tasks.start(self._register(service.register(self, message)))
        else:
            service.handle(self, message)

    async def _register(self, registration: Awaitable[None]) -> None:
        try:
            await registration
        except KafkaError as error:
            _log.info("a consumer was not registered", address=self.peer, reason=error.message)
            self.send(RegisterConsumerResponse(int(error.code), error.message or "").encode())
            return
        finally:
            self._registering = False
        if self._transport is None:
            # It closed meanwhile.
            self._listener.service.disconnected(self)
            return
        self._stop_waiting()
        self._registered = True
        self._listener.registered(self)
        self._transport.set_write_buffer_limits()
        self.send(RegisterConsumerResponse(0).encode())
        self._listener.service.registered(self)

    def send(self, frame: bytes) -> None:
        """Send one frame; nothing happens if the connection has closed."""
        transport = self._transport
        if transport is None:
            return
        transport.write(frame)
        most = MAX_UNSENT if self._registered else MAX_UNSENT_BEFORE
        if transport.get_write_buffer_size() > most:
            self.close(f"{most} bytes wait for it")

    def eof_received(self) -> bool:
        return False

    def connection_lost(self, error: Exception | None) -> None:
        self._ended()
        on_close, self.on_close = self.on_close, {}
        for callback in on_close.values():
            callback()

    def _ended(self) -> None:
        self._stop_waiting()
        if self._transport is not None:
            self._transport = None
            self._listener.leave(self)
            self._listener.service.disconnected(self)

    def close(self, reason: str | None) -> None:
        """Close the connection, and log why; a second call does nothing."""
        transport = self._transport
        if transport is None:
            return
        if reason:
            _log.info("a connection of a consumer was closed", address=self.peer, reason=reason)
        self._ended()
        transport.abort()

    # The rest of what the authorizer and the audit log know of a connection.

    def throttle(self, seconds: float) -> None:
        """Requests of this listener have no quotas."""

    def stop_reading(self) -> None:
        """Messages are served at once, so that none waits."""
