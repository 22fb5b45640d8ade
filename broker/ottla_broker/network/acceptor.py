"""An acceptor: the coroutine that takes a listener's connections and deals them out."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

from ottla_broker.clock import Clock
from ottla_broker.events import LimitedLogger, get_logger
from ottla_broker.network.backlog import Backlog
from ottla_broker.network.connection_quotas import ConnectionQuotas
from ottla_broker.network.processor import Processor, SocketSettings
from ottla_broker.network.request_memory import RequestMemory
from ottla_broker.network.service import Service

if TYPE_CHECKING:
    from ottla_broker.network.tls_handshake import TlsListener

_log = get_logger()
_refused_log = LimitedLogger()

TURN = 64
"""What is accepted in a row before other callbacks of the event loop get their turn: so many refused connections."""
_SERVED = 2
"""How many refused connections a served one counts for in a turn."""
REFUSED_PAUSE_SECONDS = 0.002
"""A pause after turns with refusals: taken many at a time, a flood's connections cost other clients less."""
_MOST_REFUSED = 1000
"""Connections that wait to be closed."""
_CLOSED_AT_ONCE = 32


class ListenError(Exception):
    """A listener's address can't be used; the message says which and why."""


def open_listener(
    host: str,
    port: int,
    backlog: int,
    receive_buffer_bytes: int = -1,
    *,
    key: str = "listeners",
    advice: str = "choose another with --listen HOST:PORT",
) -> socket.socket:
    """A non-blocking listening socket; an empty host is every IPv4 address. ``key`` and ``advice`` are for the error.

    A name with several addresses stands for its IPv4 address, as for Java: clients of ``localhost`` may try no other.

    Raises:
        ListenError: the address can't be resolved, isn't this machine's, or the port is in use.
    """
    try:
        found = socket.getaddrinfo(host or "0.0.0.0", port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = min(found, key=lambda one: one[0] != socket.AF_INET)
        sock = socket.socket(family, kind, proto)
    except OSError as error:
        raise ListenError(
            f"{key}: {host}:{port}: the host is not known ({error.strerror or error})"
        ) from error
    try:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        if receive_buffer_bytes > 0:
            # Set before listen(), so that the window of accepted connections is negotiated with it.
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer_bytes)
        sock.bind(address)
        sock.listen(backlog)
        sock.setblocking(False)
    except OSError as error:
        sock.close()
        raise ListenError(
            f"{key}: {host}:{port}: cannot listen there ({error.strerror or error}); "
            f"stop what holds the port or {advice}"
        ) from error
    return sock


def _set_options(sock: socket.socket, settings: SocketSettings) -> None:
    """Set what the sockets that a listening one accepts inherit: three system calls less for each of them."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    if settings.send_buffer_bytes > 0:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, settings.send_buffer_bytes)


def _only_address(sock: socket.socket) -> str | None:
    """The address and port that all connections of a listening socket have; None: it listens on all addresses."""
    host, port = sock.getsockname()[:2]
    return None if host in ("0.0.0.0", "::") else f"{host}:{port}"


class Acceptor:
    """One listener with its processors. Owned by the loop thread."""

    def __init__(
        self,
        name: str,
        sock: socket.socket,
        processors: int,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        service: Service,
        quotas: ConnectionQuotas,
        memory: RequestMemory,
        settings: SocketSettings,
        tls: TlsListener | None = None,
    ) -> None:
        self.name = name
        self.sock = sock
        self._loop = loop
        self._clock = clock
        self._quotas = quotas
        self._tls = tls
        _set_options(sock, settings)
        self._local = _only_address(sock)
        backlog = Backlog(loop, clock)
        self.processors = [
            Processor(i, name, loop, clock, service, quotas, memory, backlog, settings, tls)
            for i in range(processors)
        ]
        self._task: asyncio.Task[None] | None = None
        # How far the turn is, and whether a connection was refused in it.
        self._turn = 0
        self._refuses = False
        # Connections that came too early, by the time in ms when they are closed.
        self._refused: dict[int, list[socket.socket]] = {}
        self._refused_count = 0

    @property
    def port(self) -> int:
        """The port in use; a real one even if port 0 was requested."""
        port: int = self.sock.getsockname()[1]
        return port

    def start(self) -> None:
        """Start accepting connections."""
        self._task = self._loop.create_task(self._accept(), name=f"acceptor {self.name}")
        for processor in self.processors:
            processor.start()

    async def _accept(self) -> None:
        processor = 0
        failing = False
        while True:
            try:
                sock, address = await self._next()
            except OSError as error:
                # Usually out of descriptors; open connections are still served. Logged once, not ten times a second.
                if not failing:
                    failing = True
                    _log.error("cannot accept connections, trying on", listener=self.name, error=str(error))
                await self._clock.sleep(0.1)
                continue
            failing = False
            # An IPv4 client of an IPv6 listener counts as the same client as on an IPv4 listener.
            host, port = address[0].removeprefix("::ffff:"), address[1]
            try:
                # As in Kafka, a connection over the limit is accepted and waits: another listener may have been first.
                await self._quotas.room(self.name)
                rates = self._quotas.rates
                until_ms = 0 if rates is None else rates.refused_until(host)
                if not until_ms and self._quotas.admit(self.name, host):
                    self._turn += _SERVED
                    sock.setblocking(False)
                    self.processors[processor].assign(sock, host, port, self._local)
                    processor = (processor + 1) % len(self.processors)
                else:
                    self._turn += 1
                    self._refuse(sock, host, until_ms)
            except BaseException:
                sock.close()
                raise
            if rates is not None and (wait := rates.delay(self.name)):
                await self._clock.sleep(wait)

    def _refuse(self, sock: socket.socket, host: str, until_ms: int) -> None:
        """Close a connection of a host that has too many, at once.

        One that comes too early (``until_ms`` isn't 0) is closed then, so that its client doesn't try again at once.
        """
        self._refuses = True
        if not until_ms:
            _refused_log.warning("too many connections from one address", client=host, listener=self.name)
        if not until_ms or self._refused_count >= _MOST_REFUSED:
            sock.close()
            return
        refused = self._refused.get(until_ms)
        if refused is None:
            refused = self._refused[until_ms] = []
            self._clock.call_later(until_ms / 1000 - self._clock.monotonic(), self._close_refused, until_ms)
        refused.append(sock)
        self._refused_count += 1

    def _close_refused(self, until_ms: int) -> None:
        """Close some, and the rest a little later: it takes some microseconds each."""
        refused = self._refused[until_ms]
        now = refused[-_CLOSED_AT_ONCE:]
        del refused[-_CLOSED_AT_ONCE:]
        self._refused_count -= len(now)
        for sock in now:
            sock.close()
        if refused:
            self._clock.call_later(REFUSED_PAUSE_SECONDS, self._close_refused, until_ms)
        else:
            del self._refused[until_ms]

    async def _next(self) -> tuple[socket.socket, tuple[str, int]]:
        """Return the next connection, at once if one is waiting, so that a burst doesn't overrun the backlog."""
        while True:
            if self._turn < TURN:
                try:
                    return self.sock.accept()
                except BlockingIOError:
                    pass  # none is waiting: the event loop says when one is
            self._turn = 0
            if self._refuses:
                self._refuses = False
                await self._clock.sleep(REFUSED_PAUSE_SECONDS)
            else:
                await self._waiting()

    async def _waiting(self) -> None:
        """Return when a connection waits. It isn't accepted here: a stop meanwhile would lose its socket."""
        arrived = self._loop.create_future()

        def on_readable() -> None:
            self._loop.remove_reader(self.sock)
            if not arrived.done():
                arrived.set_result(None)

        self._loop.add_reader(self.sock, on_readable)
        await arrived

    def stop_accepting(self) -> None:
        """Stop accepting connections; open ones are still served."""
        if self._task is not None:
            self._task.cancel()
        if self.sock.fileno() >= 0:
            self._loop.remove_reader(self.sock)
            self.sock.close()

    async def drain(self, timeout: float) -> None:
        """Stop reading requests, and wait up to ``timeout`` seconds for the pending responses."""
        for processor in self.processors:
            processor.stop_reading()
        deadline = self._clock.monotonic() + timeout
        while self._clock.monotonic() < deadline and any(
            c.busy for p in self.processors for c in p.connections
        ):
            await self._clock.sleep(0.01)

    async def close(self) -> None:
        """Stop accepting and close every connection."""
        self.stop_accepting()
        if self._task is not None:
            await asyncio.wait([self._task])
        for refused in self._refused.values():
            for sock in refused:
                sock.close()
            refused.clear()
        if self._tls is not None:
            self._tls.close()
        for processor in self.processors:
            processor.close()
