"""A session with ZooKeeper: kazoo's client, and the exchange between the event loop and kazoo's thread.

kazoo runs one thread, which reads and writes the connection. It passes everything that happens to the loop, in
ZooKeeper's order. The loop passes requests to it and never waits for it.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import partial
from math import inf
from typing import Any, ClassVar, Final

from kazoo import exceptions as kazoo_errors
from kazoo.client import KazooClient
from kazoo.handlers.threading import SequentialThreadingHandler
from kazoo.protocol import serialization
from kazoo.protocol.connection import ConnectionHandler
from kazoo.protocol.states import KazooState, ZnodeStat

from ottla_broker.events import get_logger
from ottla_broker.store.api import Lease, SessionLostError, SessionState, StoreFailedError
from ottla_broker.store.digest_md5 import DigestError, DigestMd5
from ottla_broker.store.zookeeper_settings import (
    SaslUser,
    ZooKeeperSettings,
    parse_connect,
    tls_context,
)

_log = get_logger()

LOSSES: Final = (
    kazoo_errors.ConnectionLoss,
    kazoo_errors.OperationTimeoutError,
    kazoo_errors.ConnectionClosedError,
)
"""The connection broke: it is unknown whether a change in flight was made."""

MOST_IN_FLIGHT: Final = 200
"""kazoo is woken by a byte in a socket with room for some 270 of them; one more would block the writer."""

# How long to wait for ZooKeeper to close the session before the connection is cut.
_GOODBYE_SECONDS: Final = 1.0

_BOTH_WAYS: Final = 2  # socket.SHUT_RDWR


class _AtOnce:
    """Replaces a thread's queue: runs each call at once."""

    def put(self, call: Callable[[], None]) -> None:
        try:
            call()
        except Exception as error:
            # Otherwise the thread that reads the connection would end here.
            _log.error("an event from ZooKeeper was not handled", exc_info=error)


class _Handler(SequentialThreadingHandler):  # type: ignore[misc]
    """kazoo's threads and sockets, with fewer of both.

    Callbacks only pass something to the event loop, so the reading thread calls them itself, in order. TLS is done
    here, because kazoo always trusts the system's certificates too, and misses an answer that shares a TLS record.
    """

    def __init__(self, context: ssl.SSLContext | None, attempt_seconds: float) -> None:
        super().__init__()
        self.callback_queue = self.completion_queue = _AtOnce()
        self._context = context
        self._attempt_seconds = attempt_seconds
        self._socket: Any = None

    def start(self) -> None:
        self._running = True

    def stop(self) -> None:
        self._running = False

    def create_connection(
        self, address: tuple[str, int], hostname: str | None = None, timeout: float = 0.0, **_tls: object
    ) -> Any:
        sock = super().create_connection(
            address, hostname=hostname, timeout=min(timeout, self._attempt_seconds)
        )
        if self._context is not None:
            try:
                sock = self._context.wrap_socket(sock, server_hostname=hostname)
            except BaseException:
                sock.close()
                raise
        self._socket = sock
        return sock

    def select(self, reading: Any, writing: Any, failing: Any, timeout: float | None = None) -> Any:
        buffered = [each for each in reading if getattr(each, "pending", int)() > 0]
        if not buffered:
            return super().select(reading, writing, failing, timeout)
        ready, writable, failed = super().select(reading, writing, failing, 0)
        return list(dict.fromkeys([*buffered, *ready])), writable, failed

    def cut(self) -> None:
        """Close the current connection, from any thread; its reader notices at once."""
        if self._socket is not None:
            with contextlib.suppress(OSError):
                self._socket.shutdown(_BOTH_WAYS)


class _Connection(ConnectionHandler):  # type: ignore[misc]
    """kazoo's connection, which also reports when an answered request was sent.

    A ZooKeeper that is just starting accepts connections but may forget a request for a session. So the answer may take
    no longer than an attempt to connect; kazoo would wait until the session expires.

    ``heard`` is called on kazoo's thread with that time, and also with the session's timeout in seconds once ZooKeeper
    has set it.
    """

    def __init__(
        self,
        client: KazooClient,
        retry: Any,
        logger: Any,
        attempt_seconds: float,
        monotonic: Callable[[], float],
        heard: Callable[..., None],
        sasl: SaslUser | None,
    ) -> None:
        # kazoo logs in if it has options, and that is done here: its own way needs another package.
        super().__init__(client, retry, logger=logger, sasl_options=None if sasl is None else {})
        self._sasl = sasl
        self._attempt_seconds = attempt_seconds
        self._monotonic = monotonic
        self._heard = heard
        self._pinged = 0.0

    def _invoke(self, timeout: float, request: Any, xid: int | None = None) -> Any:
        at = self._monotonic()
        result = super()._invoke(min(timeout, self._attempt_seconds), request, xid)
        if isinstance(request, serialization.Connect) and result[0].time_out > 0:
            self._heard(at, result[0].time_out / 1000)
        return result

    def _authenticate_with_sasl(self, host: str, timeout: float) -> None:
        assert self._sasl is not None
        login = DigestMd5(self._sasl.name, self._sasl.password, self._sasl.nonce())
        try:
            challenge = self._exchange(b"", 1, timeout)
            login.check(self._exchange(login.respond(challenge), 2, timeout))
        except DigestError as error:
            raise kazoo_errors.AuthFailedError(str(error)) from error

    def _exchange(self, message: bytes, number: int, timeout: float) -> bytes:
        """ZooKeeper's answer to a message of the login. Raises kazoo's errors."""
        self._submit(serialization.SASL(message), timeout, number)
        header, buffer, offset = self._read_header(timeout)
        if header.err:
            raise DigestError("the user or the password is wrong")
        if header.xid != number:
            raise DigestError("ZooKeeper answers something else")
        return serialization.SASL.deserialize(buffer, offset)[0] or b""

    def _send_ping(self, connect_timeout: float) -> None:
        if not self.ping_outstanding.is_set():
            self._pinged = self._monotonic()
        super()._send_ping(connect_timeout)

    def _read_socket(self, read_timeout: float) -> Any:
        waited = self.ping_outstanding.is_set()
        response = super()._read_socket(read_timeout)
        if waited and not self.ping_outstanding.is_set():
            self._heard(self._pinged)
        return response


class _LastWords(logging.Handler):
    """Keeps the last problem that kazoo logged, as the reason why there is no connection."""

    def __init__(self) -> None:
        super().__init__(logging.WARNING)
        self.words = ""

    def emit(self, record: logging.LogRecord) -> None:
        text = str(record.args[-1]) if isinstance(record.args, tuple) and record.args else record.getMessage()
        text = text.removeprefix("socket connection error: ")
        # A remark without information follows each failure; a failure without text is a timeout.
        if not text.startswith("Transition to"):
            self.words = "it took too long" if text == "None" else text


class ReadMany:
    """ZooKeeper's request ``multiRead`` (since 3.6), which kazoo lacks: the data of several nodes at once.

    The answer is a list with each node's data and version, ``None`` for a missing one, or kazoo's error.
    """

    type: ClassVar[int] = 22

    def __init__(self, paths: Sequence[str]) -> None:
        self.paths = paths

    def start(self, client: KazooClient) -> Any:
        """Send it; returns kazoo's asynchronous result."""
        result = client.handler.async_result()
        client._call(self, result)
        return result

    def serialize(self) -> bytearray:
        packed = bytearray()
        for path in self.paths:
            packed += serialization.MultiHeader(serialization.GetData.type, False, -1).serialize()
            packed += serialization.write_string(path)
            packed.append(0)  # unwatched
        packed += serialization.MultiHeader(-1, True, -1).serialize()
        return packed

    @staticmethod
    def deserialize(packed: bytes, offset: int) -> list[tuple[bytes, int] | Exception | None]:
        found: list[tuple[bytes, int] | Exception | None] = []
        while True:
            header, offset = serialization.MultiHeader.deserialize(packed, offset)
            if header.done:
                return found
            if header.type == serialization.GetData.type:
                data, offset = serialization.read_buffer(packed, offset)
                stat = serialization.stat_struct.unpack_from(packed, offset)
                offset += serialization.stat_struct.size
                found.append((data or b"", ZnodeStat._make(stat).version))
            else:
                (code,) = serialization.int_struct.unpack_from(packed, offset)
                offset += serialization.int_struct.size
                error = kazoo_errors.EXCEPTIONS[code]()
                found.append(None if isinstance(error, kazoo_errors.NoNodeError) else error)


@dataclass(eq=False, slots=True)
class Request:
    """One request and its future answer.

    Attributes:
        future: the answer, or kazoo's error; SessionLostError when the session has ended.
        sent: whether kazoo has it; if not, it has changed nothing.
        at: when kazoo got it.
        zxid: ZooKeeper's last transaction known when it was sent.
        is_alone: whether no other request may be in flight with it.
    """

    start: Callable[[KazooClient], Any]
    future: asyncio.Future[Any]
    is_alone: bool = False
    sent: bool = field(default=False, init=False)
    at: float = field(default=0.0, init=False)
    zxid: int = field(default=0, init=False)
    timer: asyncio.TimerHandle | None = field(default=None, init=False)


class Link:
    """A session. Owned by the loop thread.

    Requests are sent in order, at most ``max_in_flight`` at a time, and wait while there is no connection. ``on_state``
    is called with each change of the session's state; LOST is the last.

    Attributes:
        lease: until when ZooKeeper can't have ended the session.
    """

    def __init__(
        self,
        settings: ZooKeeperSettings,
        on_state: Callable[[SessionState], None],
        monotonic: Callable[[], float],
    ) -> None:
        """Use :meth:`open` to connect. ``monotonic`` may be called on any thread.

        Raises StoreFailedError: the address or a file of TLS can't be read.
        """
        self._settings = settings
        self._loop = asyncio.get_running_loop()
        self._on_state = on_state
        self._monotonic = monotonic
        self._state = SessionState.SUSPENDED
        self._connected = asyncio.Event()
        self._waiting: deque[Request] = deque()
        self._flying: dict[Request, None] = {}
        self._limit = min(settings.max_in_flight, MOST_IN_FLIGHT)
        self._ended: asyncio.Future[None] | None = None
        # Set by kazoo's thread, before it could begin another session by itself.
        self._over = False
        self.session_id = 0
        self.lease = Lease()
        try:
            servers = parse_connect(settings.connect)
        except ValueError as error:
            raise StoreFailedError(f"zookeeper.connect={settings.connect}: {error}") from error
        seconds = settings.session_timeout_ms / 1000
        self._session_seconds = seconds
        self._silence = seconds * 2 / 3
        # Short enough that a server that doesn't answer leaves time for the others.
        patience = min(seconds, settings.connection_timeout_ms / 1000)
        context = None if settings.tls is None else tls_context(settings.tls)
        attempt = patience / (len(servers.hosts) + 1)
        self._handler = _Handler(context, attempt)
        self._last_words = _LastWords()
        logger = logging.Logger("kazoo", logging.WARNING)
        logger.addHandler(self._last_words)
        self._client = KazooClient(
            hosts=",".join(
                f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in servers.hosts
            ),
            timeout=seconds,
            handler=self._handler,
            auth_data=[("digest", ":".join(settings.digest))] if settings.digest else None,
            connection_retry={"max_tries": -1, "delay": 0.1, "max_delay": 1.0, "backoff": 2},
            logger=logger,
        )
        self._client._connection = _Connection(
            self._client,
            self._client._conn_retry.copy(),
            logger,
            attempt,
            monotonic,
            self._heard,
            settings.sasl,
        )
        self._client.add_listener(self._on_kazoo_state)

    async def open(self) -> None:
        """Begin the session. Raises StoreFailedError if no server answers within the connection's timeout."""
        self._client.start_async()
        try:
            async with asyncio.timeout(self._settings.connection_timeout_ms / 1000):
                await self._connected.wait()
                if self._settings.sasl is not None:
                    # The session begins before the login.
                    await self.request(lambda client: client.exists_async("/")).future
        except TimeoutError:
            raise StoreFailedError(self._unreachable("within")) from None
        except (SessionLostError, kazoo_errors.KazooException) as error:
            raise StoreFailedError(self._refused()) from error
        if self._state is SessionState.LOST:
            raise StoreFailedError(self._refused())

    def _refused(self) -> str:
        sasl = self._settings.sasl
        user = "" if sasl is None else f" of zookeeper.sasl.user={sasl.name}"
        return (
            f"ZooKeeper at zookeeper.connect={self._settings.connect} refused the session{user}{self._met()}"
        )

    def _unreachable(self, since: str) -> str:
        return (
            f"no ZooKeeper answers at zookeeper.connect={self._settings.connect} {since}"
            f" {self._settings.connection_timeout_ms} ms (zookeeper.connection.timeout.ms){self._met()}"
        )

    def _met(self) -> str:
        return f"; last: {self._last_words.words}" if self._last_words.words else ""

    def unreachable(self, path: str) -> str:
        return f"{path}: {self._unreachable('for')}"

    @property
    def state(self) -> SessionState:
        return SessionState.LOST if self._over else self._state

    def request(self, start: Callable[[KazooClient], Any], *, is_alone: bool = False) -> Request:
        """Queue a request; later ones don't overtake it. Raises SessionLostError if the session has ended.

        A request that ZooKeeper may not know has to be alone: the refusal overtakes earlier answers, and kazoo's
        connection ends where an answer isn't the next one.
        """
        if self.state is SessionState.LOST:
            raise SessionLostError("the session with ZooKeeper has ended")
        request = Request(start, self._loop.create_future(), is_alone)
        self._waiting.append(request)
        self._send()
        return request

    def _send(self) -> None:
        while self._waiting and len(self._flying) < self._limit and self.state is SessionState.CONNECTED:
            request = self._waiting[0]
            if self._flying and (request.is_alone or next(iter(self._flying)).is_alone):
                return
            self._waiting.popleft()
            if request.future.done():
                continue  # its caller no longer waits
            request.sent = True
            request.at = self._monotonic()
            request.zxid = self._client.last_zxid
            self._flying[request] = None
            # kazoo checks the connection only while nothing is requested.
            request.timer = self._loop.call_later(self._silence, self._handler.cut)
            request.start(self._client).rawlink(partial(self.hand_over, self._on_response, request))

    def _on_response(self, request: Request, result: Any) -> None:
        if self._flying.pop(request, self) is self:
            return
        if request.timer is not None:
            request.timer.cancel()
        error = result.exception
        if isinstance(error, LOSSES):
            # The notice of the lost connection is on its way; send nothing until it is back.
            self._become(SessionState.SUSPENDED)
        elif isinstance(error, kazoo_errors.SessionExpiredError):
            self.lose()
        else:
            self._heard(request.at)
        if not request.future.done():
            if error is None:
                request.future.set_result(result.value)
            else:
                request.future.set_exception(error)
        self._send()

    def _heard(self, at: float, session_seconds: float | None = None) -> None:
        """Note that ZooKeeper received a request sent at ``at``. Called on either thread."""
        if session_seconds is not None:
            self._session_seconds = session_seconds
        until = at + self._session_seconds
        if not self._over and until > self.lease.until:
            self.lease.until = until

    def hand_over(self, function: Callable[..., None], *args: Any) -> None:
        """Run a function on the loop, from kazoo's thread."""
        try:
            self._loop.call_soon_threadsafe(function, *args)
        except RuntimeError:
            # The loop is closed: there is no one left to call.
            return

    def _on_kazoo_state(self, state: str) -> None:
        """On kazoo's thread."""
        session = 0
        if state == KazooState.LOST:
            self._over = True
        elif state == KazooState.CONNECTED and not self._over:
            session = self._client.client_id[0]
        self.hand_over(self._set_kazoo_state, state, session)

    def _set_kazoo_state(self, state: str, session: int) -> None:
        if state == KazooState.LOST:
            self.lose()
        elif self.state is SessionState.LOST:
            return
        elif state == KazooState.CONNECTED:
            self.session_id = session
            self._become(SessionState.CONNECTED)
            self._connected.set()
            self._send()
        else:
            self._become(SessionState.SUSPENDED)

    def _become(self, state: SessionState) -> None:
        if state is not self._state and self._state is not SessionState.LOST:
            self._state = state
            self._on_state(state)

    def lose(self) -> None:
        """Fail all requests: the session has ended."""
        if self._state is SessionState.LOST:
            return
        self._over = True
        self.lease.until = -inf
        self._become(SessionState.LOST)
        self._connected.set()
        for request in (*self._flying, *self._waiting):
            if request.timer is not None:
                request.timer.cancel()
            if not request.future.done():
                request.future.set_exception(SessionLostError("the session with ZooKeeper has ended"))
        self._flying.clear()
        self._waiting.clear()
        self._end()

    def _end(self) -> asyncio.Future[None]:
        """Let kazoo end the session and its thread, which may take a while."""
        if self._ended is None:
            self._ended = self._loop.create_future()
            cut = self._loop.call_later(_GOODBYE_SECONDS, self._handler.cut)
            self._ended.add_done_callback(lambda _: cut.cancel())
            threading.Thread(target=self._end_kazoo, name="zookeeper-end", daemon=True).start()
        return self._ended

    def _end_kazoo(self) -> None:
        self._client.stop()
        self._client.close()
        self.hand_over(self._has_ended)

    def _has_ended(self) -> None:
        if self._ended is not None and not self._ended.done():
            self._ended.set_result(None)

    def abandon(self) -> None:
        """End the session without the loop, which hears of it later. Called on a thread that may wait.

        ZooKeeper removes the ephemeral nodes at once.
        """
        self._over = True
        self.lease.until = -inf
        self._end_kazoo()

    async def close(self, wait: float | None = None) -> None:
        """End the session. ``wait``: how many seconds to wait for kazoo's thread; None waits until it ends."""
        self.lose()
        await asyncio.wait([self._end()], timeout=wait)
