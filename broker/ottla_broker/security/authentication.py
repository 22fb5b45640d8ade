"""Authentication by SASL, before and after which requests are served.

::

    state          request             becomes
    CONNECTED      ApiVersions         CONNECTED
    CONNECTED      SaslHandshake       CHOSEN, or closes if the mechanism isn't offered
    CHOSEN         SaslAuthenticate    CHOSEN while the mechanism has more messages, then READY; closes if it fails
                                       (while a thread checks the message, no further request is read)
    RAW            a bare message      the same, after SaslHandshake version 0
    READY          SaslHandshake       CHOSEN: the client authenticates again (KIP-368)
    READY          any other           served, unless the session has expired: then the connection is closed

Any other request closes the connection. A failure is answered after ``connection.failed.authentication.delay.ms``.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass
from enum import Enum
from functools import partial
from struct import Struct
from typing import Any, Final

from ottla_broker.client_threads import ClientThreads
from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_broker.handlers.index import INDEX
from ottla_broker.network.pending_response import CloseConnection
from ottla_broker.network.service import ClientConnection, Parts, Principal, Reply, Service, client_at
from ottla_broker.requests.inline import Result, Running, if_left, unless_left, unread
from ottla_broker.requests.serving import reply_of
from ottla_protocol.api_keys import ApiKey, api_name
from ottla_protocol.errors import ErrorCode, ProtocolError
from ottla_protocol.header import RequestHeader, encode_response_header, parse_request_header
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from ottla_protocol.sasl.mechanism import Deferred, SaslError, SaslServer

_log = get_logger()

_LIFETIME_SINCE: Final = 1
_LEAST_BETWEEN: Final = 1.0
"""Seconds between two logins of a connection, as in Kafka (``MIN_REAUTH_INTERVAL_ONE_SECOND``)."""
_SEND_SECONDS: Final = 1.0
"""Time to send the answer to a failed login."""
_SHOWN: Final = 64
"""Characters of a stranger's text in logs."""

_MEMORY: Final = 4096
"""Bytes that the elements of a stranger's request may take; there are none but unknown tagged fields."""

_API_KEY: Final = Struct(">h")
_SIZE: Final = Struct(">i")


class State(Enum):
    """A connection's stage of authentication."""

    CONNECTED = "connected"
    CHOSEN = "mechanism chosen"
    RAW = "mechanism chosen, messages without headers"
    READY = "ready"


ALLOWED: Final[Mapping[State, frozenset[int]]] = {
    State.CONNECTED: frozenset((ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE)),
    State.CHOSEN: frozenset((ApiKey.SASL_AUTHENTICATE,)),
    State.READY: frozenset((ApiKey.SASL_HANDSHAKE,)),
}
"""The requests that each state allows; READY also those that are for the handlers."""

MakeServer = Callable[[], SaslServer]


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A mechanism that a listener offers; ``max_session`` is in seconds, 0 for without end."""

    make: MakeServer
    max_session: float


class Session:
    """The login of one connection. Times are on the monotonic clock.

    Attributes:
        token_authenticated: whether the client has logged in with a delegation token.
    """

    __slots__ = ("authenticated_at", "expires", "mechanism", "server", "state", "token_authenticated")

    def __init__(self) -> None:
        self.state = State.CONNECTED
        self.mechanism = ""
        self.server: SaslServer | None = None
        self.authenticated_at = 0.0
        self.expires: float | None = None
        self.token_authenticated = False


class AuthenticatingService:
    """Serves the requests of a listener with SASL: see :class:`ottla_broker.network.service.Service`.

    Owned by the loop thread.

    Attributes:
        succeeded, failed: authentications, counted.
    """

    def __init__(
        self,
        inner: Service,
        mechanisms: Mapping[str, Mechanism],
        clock: Clock,
        delay: Callable[[], float],
        threads: ClientThreads,
    ) -> None:
        """``inner`` serves the requests of clients that have authenticated. ``delay`` is in seconds.

        ``threads`` check what takes milliseconds.
        """
        self.succeeded = self.failed = 0
        self._inner = inner
        self._mechanisms = mechanisms
        self._clock = clock
        self._delay = delay
        self._threads = threads

    def handle(self, connection: ClientConnection, frame: memoryview) -> Reply:
        session: Session | None = connection.session
        if session is None:
            session = connection.session = Session()
        elif session.state is State.READY and (
            len(frame) < 2 or _API_KEY.unpack_from(frame)[0] != ApiKey.SASL_HANDSHAKE
        ):
            if session.expires is not None and self._clock.monotonic() >= session.expires:
                raise CloseConnection("its session has expired, and the client has not authenticated again")
            return self._inner.handle(connection, frame)
        if session.state is State.RAW:
            assert session.server is not None
            respond = partial(session.server.respond, bytes(frame))
            return _reply(self._answer(connection, session, None, respond))
        return self._login(connection, session, frame)

    def _login(self, connection: ClientConnection, session: Session, frame: memoryview) -> Reply:
        try:
            header, position = parse_request_header(frame)
        except ProtocolError as error:
            raise CloseConnection(f"a request's header can't be read: {error}") from error
        key, version = header.api_key, header.api_version
        if key not in ALLOWED[session.state]:
            raise CloseConnection(f"{api_name(key)} came from a client that has not authenticated")
        connection.client_id = header.client_id
        if key == ApiKey.API_VERSIONS:
            self._check(header, frame, position)
            return self._inner.handle(connection, frame)
        _, first, last, *_ = INDEX[key]
        if not first <= version <= last:
            raise CloseConnection(
                f"{api_name(key)} version {version} is not served, versions {first} to {last} are"
            )
        try:
            if key == ApiKey.SASL_HANDSHAKE:
                handshake = SaslHandshakeRequest.decode_counted(frame, version, position, _MEMORY)
                return self._choose(connection, session, header, handshake.mechanism)
            message = SaslAuthenticateRequest.decode_counted(frame, version, position, _MEMORY).auth_bytes
        except ProtocolError as error:
            raise CloseConnection(f"{api_name(key)} version {version} can't be read: {error}") from error
        assert session.server is not None
        return _reply(self._answer(connection, session, header, partial(session.server.respond, message)))

    def _check(self, header: RequestHeader, frame: memoryview, position: int) -> None:
        """Refuse a stranger's ApiVersions that is larger than any client's. Raises CloseConnection."""
        try:
            if not 0 <= header.api_version <= ApiVersionsRequest.VERSIONS[1]:
                return  # it is answered without being read (KIP-511)
            ApiVersionsRequest.decode_counted(frame, header.api_version, position, _MEMORY)
        except ProtocolError as error:
            raise CloseConnection(f"ApiVersions can't be read: {error}") from error

    def _choose(
        self, connection: ClientConnection, session: Session, header: RequestHeader, name: str
    ) -> Reply:
        mechanism = self._mechanisms.get(name)
        offered = SaslHandshakeResponse(mechanisms=list(self._mechanisms))
        if mechanism is None:
            offered.error_code = ErrorCode.UNSUPPORTED_SASL_MECHANISM
            reason = f"mechanism {name[:_SHOWN]!r} is not offered"
            return _reply(self._refused(connection, session, _encoded(header, offered), reason))
        if session.state is State.READY:
            if name != session.mechanism:
                raise CloseConnection(
                    f"the client has authenticated by {session.mechanism}, and not again by {name}"
                )
            if self._clock.monotonic() - session.authenticated_at < _LEAST_BETWEEN:
                raise CloseConnection("the client authenticates again too soon")
        session.mechanism = name
        session.server = mechanism.make()
        session.state = State.CHOSEN if header.api_version > 0 else State.RAW
        return _encoded(header, offered)

    async def _answer(
        self,
        connection: ClientConnection,
        session: Session,
        header: RequestHeader | None,
        respond: Callable[[], bytes],
    ) -> Parts | None:
        """Answer a message of the mechanism; without a header after SaslHandshake version 0."""
        assert session.server is not None
        try:
            answer = await self._responded(connection, respond)
            lifetime = self._complete(connection, session) if session.server.complete else 0.0
        except SaslError as error:
            # Without a header, there is no answer that the client could read.
            refusal = None
            if header is not None:
                code = ErrorCode.SASL_AUTHENTICATION_FAILED
                response = SaslAuthenticateResponse(error_code=code, error_message=str(error))
                refusal = _encoded(header, response)
            return await self._refused(connection, session, refusal, error.reason + _by_user(session))
        if header is None:
            return [_SIZE.pack(len(answer)) + answer]
        response = SaslAuthenticateResponse(error_message=None, auth_bytes=answer)
        if header.api_version >= _LIFETIME_SINCE:
            response.session_lifetime_ms = int(lifetime * 1000)
        return _encoded(header, response)

    async def _responded(self, connection: ClientConnection, respond: Callable[[], bytes]) -> bytes:
        """The mechanism's answer. A thread does what takes long; nothing is read from the connection meanwhile."""
        while True:
            try:
                return respond()
            except Deferred as deferred:
                later = deferred
            try:
                with unread(connection):
                    work = self._threads.run(client_at(connection.client_host), later.work)
                    outcome = await unless_left(work, partial(self._threads.withdraw, work))
            except (asyncio.CancelledError, Exception) as error:
                if isinstance(error, Exception):
                    _log.error("login failed", connection=connection.id, exc_info=error)
                raise CloseConnection("the login can't be checked") from None
            respond = partial(later.then, outcome)

    def _complete(self, connection: ClientConnection, session: Session) -> float:
        """Let the client in. Returns the session's seconds, 0 for without end; raises SaslError."""
        server = session.server
        assert server is not None
        principal = Principal("User", server.user)
        if connection.authenticated and principal != connection.principal:
            raise SaslError(
                f"Cannot change principals during re-authentication from {':'.join(connection.principal)}"
                f" to {':'.join(principal)}"
            )
        now = self._clock.monotonic()
        limits = [self._mechanisms[session.mechanism].max_session]
        if server.expires_ms is not None:
            limits.append((server.expires_ms - self._clock.now_ms()) / 1000)
            if limits[-1] <= 0:
                raise SaslError("Authentication failed: the credential has expired")
        lifetime = min((limit for limit in limits if limit > 0), default=0.0)
        session.expires = now + lifetime if lifetime else None
        session.authenticated_at = now
        session.token_authenticated = server.token_authenticated
        session.server = None
        session.state = State.READY
        connection.principal = principal
        connection.authenticated = True
        self.succeeded += 1
        return lifetime

    async def _refused(
        self, connection: ClientConnection, session: Session, parts: Parts | None, reason: str
    ) -> Parts | None:
        """Answer after a delay, and close the connection."""
        self.failed += 1
        session.server = None
        connection.stop_reading()
        delayed: Result[None] = Result()
        timer = self._clock.call_later(self._delay(), delayed.give, None)
        with if_left(timer.cancel):
            await delayed
        self._clock.call_later(0, self._close, connection, f"authentication failed: {reason}")
        return parts

    def _close(self, connection: ClientConnection, what: str) -> None:
        """Close once the answer is sent, or can't be."""
        if connection.busy:
            self._clock.call_later(_SEND_SECONDS, connection.close, what)
        else:
            connection.close(what)


def _reply(work: Coroutine[Any, None, Parts | None]) -> Reply:
    return reply_of(Running(work).start())


def _by_user(session: Session) -> str:
    """Whose login it was, for the log; cut and escaped, because a stranger chose the name."""
    user = "" if session.server is None else session.server.user
    return f" (user {user[:_SHOWN]!r})" if user else ""


def _encoded(header: RequestHeader, response: SaslHandshakeResponse | SaslAuthenticateResponse) -> Parts:
    head = encode_response_header(header.api_key, header.api_version, header.correlation_id)
    body = response.encode(header.api_version)
    return [_SIZE.pack(len(head) + len(body)) + head + body]
