"""The TLS handshake of an accepted connection, before it becomes a :class:`.connection.Connection`.

A stranger's handshake may cost little. Each step, with its signatures, runs on a thread of its own small pool. The
whole must be done within :data:`HANDSHAKE_SECONDS` and :data:`HANDSHAKE_BYTES`, and what doesn't begin as a handshake
never reaches OpenSSL.
"""

from __future__ import annotations

import asyncio
import fcntl
import socket
import ssl
import struct
import sys
import termios
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from ottla_broker.client_threads import ClientThreads
from ottla_broker.clock import Clock, TimerHandle
from ottla_broker.config.principal_mapping import user_name
from ottla_broker.events import LimitedLogger
from ottla_broker.network.distinguished_name import subject_of
from ottla_broker.network.service import ANONYMOUS, Principal, client_at
from ottla_broker.network.tls_settings import TlsContexts
from ottla_broker.network.tls_socket import TlsSocket, as_server

_log = LimitedLogger()

HANDSHAKE_SECONDS: Final = 10.0
HANDSHAKE_BYTES: Final = 64 * 1024

_HELLO: Final = struct.Struct(">BHHB3s")
"""A TLS record's type, version and length, then a handshake message's type and length."""
_HANDSHAKE: Final = 22
_CLIENT_HELLO: Final = 1
_TCP_INFO_BYTES: Final = 136
_RECEIVED: Final = struct.Struct("@Q")
_RECEIVED_AT: Final = 128
"""Where Linux's ``struct tcp_info`` has ``tcpi_bytes_received``."""


class Step(Enum):
    """What a handshake needs next."""

    READ = "read"
    WRITE = "write"
    DONE = "done"


class TlsListener:
    """Parts that the handshakes of one listener share. Owned by the loop thread.

    Attributes:
        handshakes: those under way; ``succeeded`` and ``failed`` are counted.
    """

    def __init__(self, contexts: TlsContexts, threads: ClientThreads) -> None:
        self.contexts = contexts
        self.threads = threads
        self.handshakes: set[Handshake] = set()
        self.succeeded = self.failed = 0

    def close(self) -> None:
        """End all handshakes."""
        for handshake in list(self.handshakes):
            handshake.close(None)


class Handshake:
    """One handshake. ``done`` gets the socket and the client's principal, ``failed`` is called if there is none.

    Owned by the loop thread. A step on a thread owns the TLS socket meanwhile.
    """

    def __init__(
        self,
        sock: socket.socket,
        host: str,
        name: str,
        listener: TlsListener,
        loop: asyncio.AbstractEventLoop,
        clock: Clock,
        done: Callable[[TlsSocket, Principal], None],
        failed: Callable[[], None],
    ) -> None:
        self.name = name
        self._host = host
        self._sock = sock
        self._tls: ssl.SSLSocket | None = None
        self._listener = listener
        self._loop = loop
        self._clock = clock
        self._done = done
        self._failed = failed
        # The step that a thread does, or is to do.
        self._step: asyncio.Future[Step] | None = None
        self._closed = False
        self._watched = Step.DONE
        self._timer: TimerHandle | None = None
        self._fd = sock.fileno()

    def start(self) -> None:
        """Begin. Raises OSError if the system can watch no more sockets."""
        self._watch(Step.READ)
        self._listener.handshakes.add(self)
        self._timer = self._clock.call_later(HANDSHAKE_SECONDS, self._give_up)

    def _give_up(self) -> None:
        self.close(f"it was not finished within {HANDSHAKE_SECONDS:.3g} s")

    def _watch(self, step: Step) -> None:
        if self._watched is step:
            return
        if self._watched is Step.READ:
            self._loop.remove_reader(self._fd)
        elif self._watched is Step.WRITE:
            self._loop.remove_writer(self._fd)
        self._watched = step
        if step is Step.READ:
            self._loop.add_reader(self._fd, self._on_ready)
        elif step is Step.WRITE:
            self._loop.add_writer(self._fd, self._on_ready)

    def _on_ready(self) -> None:
        self._watch(Step.DONE)
        if self._tls is None:
            try:
                wrong = _look(self._sock)
                if wrong is None:
                    self._tls = as_server(self._sock, self._listener.contexts.context)
            except BlockingIOError:
                self._watch(Step.READ)
                return
            except (OSError, ValueError) as error:
                self.close(_reason(error))
                return
            if wrong is not None:
                self.close(wrong or None)
                return
        assert self._tls is not None
        self._step = self._listener.threads.run(client_at(self._host), _step, self._tls)
        self._step.add_done_callback(self._stepped)

    def _stepped(self, future: asyncio.Future[Step]) -> None:
        self._step = None
        if self._closed or future.cancelled():
            self._closed = True
            self._shut()
            return
        error = future.exception()
        if error is not None:
            self.close(_reason(error))
            return
        step = future.result()
        if step is not Step.DONE:
            if _received(self._sock_now) > HANDSHAKE_BYTES:
                self.close(f"it has more than {HANDSHAKE_BYTES} bytes")
            else:
                self._watch(step)
            return
        self._finish()

    @property
    def _sock_now(self) -> socket.socket:
        return self._sock if self._tls is None else self._tls

    def _finish(self) -> None:
        assert self._tls is not None
        try:
            principal = principal_of(
                self._tls.getpeercert(binary_form=True), self._listener.contexts.settings.mapping_rules
            )
        except ValueError as error:
            self.close(str(error))
            return
        self._end()
        self._listener.succeeded += 1
        self._done(TlsSocket(self._tls), principal)

    def _end(self) -> None:
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._listener.handshakes.discard(self)

    def close(self, reason: str | None) -> None:
        """Give the handshake up. ``reason`` is logged; None if the client just left."""
        if self._closed:
            return
        self._end()
        self._watch(Step.DONE)
        if self._step is None:
            self._shut()
        else:
            # A thread may still use the socket, which is closed when the step has ended.
            self._listener.threads.withdraw(self._step)
        if reason is not None:
            self._listener.failed += 1
            _log.warning("TLS handshake failed", reason=reason, connection=self.name)
        self._failed()

    def _shut(self) -> None:
        # A socket that the client has reset can say so when it is closed.
        with suppress(OSError):
            self._sock_now.close()


def principal_of(certificate: bytes | None, rules: str) -> Principal:
    """The principal of a client with a certificate in DER, or without. Raises ValueError if no rule matches."""
    if certificate is None:
        return ANONYMOUS
    return Principal("User", user_name(rules, subject_of(certificate)))


def _look(sock: socket.socket) -> str | None:
    """Return why the first bytes don't begin a handshake; None if they may, empty if the client has left."""
    data = sock.recv(_HELLO.size, socket.MSG_PEEK)
    if not data:
        return ""
    if data[0] != _HANDSHAKE:
        what = "HTTP" if data[:4] in (b"GET ", b"POST", b"PUT ", b"HEAD") else "no TLS"
        return f"the client speaks {what}: set its security.protocol to SSL"
    if len(data) == _HELLO.size:
        _, version, _, message, length = _HELLO.unpack(data)
        if version >> 8 != 3 or message != _CLIENT_HELLO:
            return "the client doesn't begin with a ClientHello"
        if int.from_bytes(length, "big") > HANDSHAKE_BYTES // 2:
            return "its ClientHello is too large"
    return None


def _step(sock: ssl.SSLSocket) -> Step:
    """One step of the handshake, on a thread; touches only this socket."""
    try:
        sock.do_handshake()
    except ssl.SSLWantReadError:
        return Step.READ
    except ssl.SSLWantWriteError:
        return Step.WRITE
    return Step.DONE


def _received(sock: socket.socket) -> int:
    """The bytes that have been read from a socket since it was accepted; 0 where the system doesn't count them."""
    if sys.platform != "linux":
        return 0
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0
    (received,) = _RECEIVED.unpack_from(info, _RECEIVED_AT)
    waiting = struct.unpack("@i", fcntl.ioctl(sock.fileno(), termios.FIONREAD, bytes(4)))[0]
    return int(received) - int(waiting)


def _reason(error: BaseException) -> str | None:
    """The reason for the log; None if the client just left."""
    if isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError | ConnectionError):
        return None
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"the client's certificate is refused: {error.verify_message}"
    if isinstance(error, ssl.SSLError) and error.reason:
        return str(error.reason).lower().replace("_", " ")
    return str(error) or type(error).__name__
