"""One connection to one broker: requests go out at once, responses come back in order.

A request is encoded and passed to the transport in the call that submits it. ``ottla_protocol.exchange`` encodes and
decodes; this module has the socket, the timeouts and the waiting callers. Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla_protocol.api_keys import api_title
from ottla_protocol.errors import ErrorCode, KafkaError, LocalProtocolError, ProtocolError
from ottla_protocol.exchange import Exchange, UnsupportedVersionError
from ottla_protocol.features import Features
from ottla_protocol.messages.api_versions import ApiVersionsRequest
from ottla_protocol.sasl.login import LOGIN, MechanismRefused, authenticate
from ottla_protocol.sasl.mechanism import SaslError

from .errors import (
    AuthenticationError,
    BrokerError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    NotABrokerError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from .staggered import AllFailed, staggered_race
from .transport import connect, refused, resolve

if TYPE_CHECKING:
    from ottla_protocol.sasl.login import Login
    from ottla_protocol.schema import Message

MAX_RESPONSE_BYTES = 128 * 1024 * 1024
"""The largest response accepted. Text in place of a size (HTTP, SMTP, SSH) reads as a larger one."""
HIGH_WATER = 1024 * 1024
"""Bytes in the transport's buffer above which ``drain`` waits."""
JOINED = 32 * 1024
"""Requests up to this many bytes are joined before they are written."""
CLOSE_SECONDS = 2.0
"""Seconds that a closed connection may take to send submitted requests."""
ADDRESS_DELAY = 0.25
"""Seconds before the next address of a host is tried in parallel (RFC 8305)."""
QUIET_SECONDS = 5.0
"""Seconds without an answer, beyond those that a request allows the broker, after which a warning says so."""

SOFTWARE = ("ottla", "0.1.0")
"""The client's name and version for brokers (KIP-511)."""

_log = logging.getLogger("ottla_client")


class _Call:
    """Used in place of a future: its callback runs at once, a future's in the next turn of the loop."""

    __slots__ = ("_answered", "_done")

    def __init__(self, answered: Callable[[Any, Exception | None], None]) -> None:
        self._answered = answered
        self._done = False

    def done(self) -> bool:
        return self._done

    def set_exception(self, error: Exception) -> None:
        self.set_result(None, error)

    def set_result(self, value: object, error: Exception | None = None) -> None:
        self._done = True
        try:
            self._answered(value, error)
        except Exception as broken:
            # As for a future's callback: its failure must not affect the connection.
            context = {"message": f"{self._answered} failed", "exception": broken}
            asyncio.get_running_loop().call_exception_handler(context)


class _Waiting(NamedTuple):
    """A pending request; ``due`` and ``expires`` are on the monotonic clock, ``timeout`` in seconds."""

    future: asyncio.Future[Any] | _Call
    name: str
    due: float
    expires: float
    timeout: float


class Connection(asyncio.BufferedProtocol):
    """Created by ``open``. ``closed`` is True as soon as it accepts no further requests.

    ``on_close`` is called once, with this connection, when the socket is closed. ``error`` says why; it is None after
    ``close`` and for an idle connection.
    """

    def __init__(
        self, host: str, port: int, client_id: str, max_response_bytes: int, max_idle: float, tls: bool
    ) -> None:
        self.host = host
        self.port = port
        self.closed = False
        self.error: ClientError | None = None
        self.on_close: Callable[[Connection], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange[_Waiting] = Exchange(client_id, max_response_bytes)
        self._max_idle = max_idle
        self._tls = tls
        self._transport: asyncio.Transport | None = None
        self._used = monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._speaks = False
        """Whether the broker has answered since the last warning that it doesn't."""
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        # Requests that wait for a login to be renewed, and how to send them.
        self._held: list[tuple[asyncio.Future[Any] | _Call, Callable[[], None]]] | None = None
        self._renewal: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        return f"<Connection {self.host}:{self.port} {state}>"

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        ssl_context: ssl.SSLContext | None = None,
        login: Login | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        max_idle: float = inf,
    ) -> Connection:
        """Connect, over TLS if there is a context, negotiate versions and log in, within ``timeout`` seconds.

        All addresses of the host are tried. With ``max_idle`` the connection closes itself after that many seconds
        without use. Raises ConnectError if no broker answers in time, AuthenticationError if it refuses the login,
        NotABrokerError if something other than a broker answers.
        """
        stages: dict[str, str] = {}

        async def attempt(address: str) -> Connection:
            connection = cls(host, port, client_id, max_response_bytes, max_idle, ssl_context is not None)
            stages[address] = "no TCP connection" if ssl_context is None else "no TLS connection"
            connection._transport = await connect(connection, address, host, port, ssl_context)
            stages[address] = "connected, but no answer to the first request (ApiVersions)"
            try:
                await connection._ask_versions(timeout + 1)  # the limit below expires first
                if login is not None:
                    stages[address] = "connected, but the login was not answered"
                    await connection._log_in(login, timeout + 1)
            except BaseException:
                connection.close(ConnectionLostError(f"{host}:{port}: the handshake was not finished"))
                raise
            return connection

        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve(host, port)
                attempts = [partial(attempt, address) for address in addresses]
                return await staggered_race(attempts, ADDRESS_DELAY, lambda unneeded: unneeded.close())
        except TimeoutError:
            states = "; ".join(f"{address}: {stage}" for address, stage in stages.items())
            raise ConnectError(
                f"{host}:{port} did not answer as a broker within {timeout:.3g} s"
                f" ({states or 'its name was not resolved'})"
            ) from None
        except AllFailed as all_failed:
            raise _of_addresses(list(all_failed.failures.values())) from None

    async def _ask_versions(self, timeout: float) -> None:
        """Send ApiVersions in version 3, or in the version that an older broker names (KIP-511)."""
        request = ApiVersionsRequest(client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1])
        while True:
            version = self._exchange.handshake_version
            try:
                answer = await self.submit(request, timeout=timeout, version=version, raw=True)
            except ConnectionLostError as error:
                # In TLS 1.3 the client's handshake ends before the broker checks its certificate.
                if isinstance(error.__cause__, ssl.SSLError):
                    raise refused(self.host, self.port, error.__cause__) from error
                kind = (
                    "a TLS listener that asks for another certificate"
                    if self._tls
                    else "a TLS listener (set security_protocol to SSL or SASL_SSL)"
                )
                raise ConnectError(
                    f"{error}: it is {kind}, a broker older than 0.10, or not a broker at all"
                ) from error
            try:
                if self._exchange.learn(answer):
                    return
            except ProtocolError as error:
                raise self._no_broker(f"a malformed response to ApiVersions ({error})") from error
            except KafkaError as error:
                raise BrokerError(
                    error.code, f"{self.host}:{self.port} refused ApiVersions: {error.code.name}"
                ) from error

    async def _log_in(self, login: Login, timeout: float, renewed: bool = False) -> None:
        """Authenticate by SASL (KIP-152). Raises AuthenticationError, ConnectionLostError."""
        where = f"{self.host}:{self.port}"
        ask = partial(self.submit, timeout=timeout)
        try:
            # This may get a token from an OAuth provider, so other requests wait only from then on.
            client = await login.client()
            if renewed:
                self._held = []
            seconds = await authenticate(login.mechanism, client, ask, asyncio.to_thread)
        except MechanismRefused as error:
            if error.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
                offered = ", ".join(error.offered)
                raise AuthenticationError(
                    f"{where} does not offer {login.mechanism}; set sasl_mechanism to one of {offered}"
                ) from None
            raise AuthenticationError(
                f"{where} refuses logins ({error}); if its listener needs none, set security_protocol to PLAINTEXT"
                " or SSL"
            ) from None
        except SaslError as error:
            whose, check = f" of {login.user}", "; check sasl_plain_username and sasl_plain_password"
            if not login.user:
                whose = check = ""
            raise AuthenticationError(
                f"{where}: the login{whose} by {login.mechanism} failed: {error}{check}"
            ) from None
        if seconds > 0:
            self._renewal = self._loop.call_later(seconds, self._start_renewal, login, timeout)

    def _start_renewal(self, login: Login, timeout: float) -> None:
        if not self.closed:
            self._renewing = self._loop.create_task(self._renew(login, timeout))

    async def _renew(self, login: Login, timeout: float) -> None:
        """Log in again before the session ends (KIP-368); other requests wait meanwhile."""
        try:
            await self._log_in(login, timeout, renewed=True)
        except ClientError as error:
            self.close(error)
            return
        held, self._held = self._held or [], None
        for future, sends in held:
            if future.done():
                continue
            try:
                sends()
            except ClientError as error:
                future.set_exception(error)

    def version_of(self, api_key: int) -> int:
        """The highest version that both sides support. Raises UnsupportedApiError if there is none."""
        try:
            return self._exchange.version_of(api_key)
        except UnsupportedVersionError as error:
            raise self._unsupported(error) from error

    @property
    def features(self) -> Features:
        """The features of the cluster when the connection was opened."""
        return self._exchange.features

    def _unsupported(self, error: UnsupportedVersionError) -> UnsupportedApiError:
        return UnsupportedApiError(
            f"{self.host}:{self.port} can't be asked {error}; another version of the broker or of the client is needed"
        )

    @property
    def gone(self) -> bool:
        """Whether the socket is closed."""
        return self._gone.done()

    @property
    def in_flight(self) -> int:
        """The number of pending requests."""
        return len(self._exchange.pending)

    def submit(
        self, request: Message, *, timeout: float, version: int | None = None, raw: bool = False
    ) -> asyncio.Future[Any]:
        """Encode and write a request now; the future gets the decoded response, or the RawAnswer with ``raw``.

        ``version`` defaults to the highest that both sides support. The future fails with ConnectionLostError when the
        connection breaks, and with RequestTimeoutError after ``timeout`` seconds. A timeout closes the connection,
        because later responses couldn't be matched. Cancelling the future only discards the response. A ProduceRequest
        with acks=0 has no response: its future is done, with None, once the transport has its bytes.

        Raises ConnectionLostError if the connection is closed, UnsupportedApiError if the broker can't serve the
        request.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._write(request, future, timeout, version, raw)
        return future

    def call(
        self,
        request: Message,
        answered: Callable[[Any, Exception | None], None],
        *,
        timeout: float,
        version: int | None = None,
    ) -> None:
        """As ``submit``, but calls ``answered(response, error)``, which saves a turn of the event loop per request.

        ``answered`` must not raise.
        """
        self._write(request, _Call(answered), timeout, version, raw=False)

    def _write(
        self,
        request: Message,
        future: asyncio.Future[Any] | _Call,
        timeout: float,
        version: int | None,
        raw: bool,
    ) -> None:
        if self.closed:
            raise self._lost()
        if self._held is not None and not isinstance(request, LOGIN):
            self._held.append((future, partial(self._write, request, future, timeout, version, raw)))
            return
        self._used = now = monotonic()
        expires = now + timeout
        due = min(expires, now + QUIET_SECONDS + getattr(request, "max_wait_ms", 0) / 1000)
        waiting = _Waiting(future, api_title(request.API_KEY or 0), due, expires, timeout)
        try:
            parts, size, answered = self._exchange.request(request, waiting, version=version, raw=raw)
        except UnsupportedVersionError as error:
            raise self._unsupported(error) from error
        except LocalProtocolError as error:
            raise UnsupportedApiError(
                f"{self.host}:{self.port} can't be asked this by the version of {waiting.name} that it speaks: {error}"
            ) from error
        if not answered:
            future.set_result(None)
        elif due < self._alarm_at:
            self._set_alarm(due)
        transport = self._transport
        assert transport is not None
        if size <= JOINED:
            transport.write(b"".join(parts))
        else:
            transport.writelines(parts)

    @property
    def is_full(self) -> bool:
        """Whether ``drain`` would wait."""
        return self._writable is not None

    async def drain(self) -> None:
        """Wait while more than HIGH_WATER bytes are unsent. Raises ConnectionLostError when the connection breaks."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self.closed:
            raise self._lost()

    def close(self, error: ClientError | None = None) -> None:
        """Accept no further requests; pending ones fail with ``error``, or with ConnectionLostError.

        Without an error, submitted requests are still sent, within CLOSE_SECONDS. A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        self.error = error
        self._disarm()
        transport = self._transport
        if transport is None:
            self._finish()
        elif error is None and transport.get_write_buffer_size():
            transport.close()
            self._alarm = self._loop.call_later(CLOSE_SECONDS, transport.abort)
        else:
            transport.abort()
        self._fail_pending()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after ``close``."""
        await asyncio.shield(self._gone)

    def _lost(self) -> ClientError:
        """A new exception for each caller, so that tracebacks don't mix."""
        error = self.error
        if error is None:
            return ConnectionLostError(f"the connection to {self.host}:{self.port} is closed")
        copy = type(error)(*error.args)
        copy.__cause__ = error.__cause__
        return copy

    def _fail_pending(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()
        held, self._held = self._held or [], None
        for future, _ in held:
            if not future.done():
                future.set_exception(self._lost())
        pending = self._exchange.pending
        while pending:
            future = pending.popleft().token.future
            if not future.done():
                future.set_exception(self._lost())
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _finish(self) -> None:
        self._disarm()
        if not self._gone.done():
            self._gone.set_result(None)
            if self.on_close is not None:
                self.on_close(self)

    def _set_alarm(self, at: float) -> None:
        self._disarm()
        self._alarm_at = at
        self._alarm = self._loop.call_later(max(0.0, at - monotonic()), self._on_alarm)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = inf

    def _on_alarm(self) -> None:
        """A request may be due or have timed out, or the connection may have been idle for too long."""
        self._alarm = None
        self._alarm_at = inf
        now = monotonic()
        waiting = [each.token for each in self._exchange.pending]
        late = next((each for each in waiting if each.expires <= now), None)
        if late is not None:
            where = f"{self.host}:{self.port}"
            if not late.future.done():
                late.future.set_exception(
                    RequestTimeoutError(
                        f"{where} did not answer {late.name} within {late.timeout:.3g} s; the connection is closed"
                    )
                )
            self.close(
                ConnectionLostError(f"the connection to {where} was closed: {late.name} was not answered")
            )
            return
        overdue = next((each for each in waiting if each.due <= now), None)
        if overdue is not None and self._speaks:
            self._speaks = False
            silent = overdue.timeout - (overdue.expires - now)
            _log.warning(
                "%s:%d has not answered %s for %.0f s; waiting up to %.0f s",
                self.host,
                self.port,
                overdue.name,
                silent,
                overdue.timeout,
            )
        due = min((each.due if each.due > now else each.expires for each in waiting), default=inf)
        if not waiting:
            due = self._used + self._max_idle
            if due <= now:
                self.close()
                return
        if due < inf:
            self._set_alarm(due)

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports aren't subclasses of asyncio's.
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)
        if self._max_idle < inf:
            self._set_alarm(self._used + self._max_idle)

    def pause_writing(self) -> None:
        if self._writable is None and not self.closed:
            self._writable = self._loop.create_future()

    def resume_writing(self) -> None:
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._exchange.buffer()

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        try:
            answers = self._exchange.received(nbytes)
        except ProtocolError as error:
            self.close(self._no_broker(str(error)))
            return
        if answers:
            self._speaks = True
        for waiting, value, wrong in answers:
            future = waiting.future
            if wrong is not None:
                failure = self._no_broker(str(wrong))
                if not future.done():
                    future.set_exception(failure)
                self.close(failure)
            elif not future.done():
                future.set_result(value)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            how = "the broker closed it" if exc is None else str(exc) or type(exc).__name__
            self.error = ConnectionLostError(f"the connection to {self.host}:{self.port} broke: {how}")
            self.error.__cause__ = exc
            self._fail_pending()
        self._finish()

    def _no_broker(self, came: str) -> NotABrokerError:
        return NotABrokerError(f"{self.host}:{self.port} does not answer as a Kafka broker; it sent {came}")


def _of_addresses(failures: list[Exception]) -> Exception:
    """One error for all addresses of a host: of the most specific type, with all of them in its text."""
    first = next((each for each in failures if not isinstance(each, ConnectError)), failures[0])
    if len(failures) == 1 or not isinstance(first, ConnectError):
        return first
    return ConnectError("; ".join(dict.fromkeys(str(each) for each in failures)))
