"""One connection to a broker, of a client or of another broker: requests go out at once, responses come back in order.

A request is encoded and passed to the transport in the call that submits it. :class:`.Exchange` encodes and decodes;
this module has the socket, the timeouts, the login and the waiting callers. Everything runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from math import inf
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic, NamedTuple, Protocol, TypeVar, cast

from ..api_keys import api_title
from ..errors import LocalProtocolError, ProtocolError
from ..exchange import Encoded, Exchange, UnsupportedVersionError
from ..features import Features
from ..messages.api_versions import ApiVersionsRequest
from ..sasl.login import LOGIN, MechanismRefused, authenticate
from ..sasl.mechanism import SaslError

if TYPE_CHECKING:
    from ..sasl.login import Login
    from ..schema import Message

HIGH_WATER: Final = 1024 * 1024
"""Bytes in the transport's buffer above which ``drain`` waits."""
JOINED: Final = 32 * 1024
"""Requests up to this many bytes are joined before they are written."""
_TOKEN_SECONDS: Final = 1.0
"""The pause before another attempt to get a token, while a session lasts."""

E = TypeVar("E", bound=Exception)


class Errors(NamedTuple, Generic[E]):
    """The exceptions of a connection, each made from a message; ``every`` is the class of all."""

    every: type[E]
    lost: Callable[[str], E]
    late: Callable[[str], E]
    no_broker: Callable[[str], E]
    unsupported: Callable[[str], E]


class _Timer(Protocol):
    def cancel(self) -> None: ...


class Clock(Protocol):
    """Seconds that never go backwards, and timers on the event loop."""

    def monotonic(self) -> float: ...

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> _Timer: ...


class Result(Protocol):
    """What waits for a response: a future, or what does as one."""

    def done(self) -> bool: ...

    def set_result(self, value: Any, /) -> None: ...

    def set_exception(self, error: Exception, /) -> None: ...


class _Waiting(NamedTuple):
    """A pending request; ``due`` and ``expires`` are on the monotonic clock, ``timeout`` in seconds."""

    future: Result
    name: str
    due: float
    expires: float
    timeout: float


class BrokerConnection(asyncio.BufferedProtocol, Generic[E]):
    """``closed`` is True as soon as it accepts no further requests; ``error`` says why, or is None after ``close``.

    Attributes:
        software: this side's name and version for brokers (KIP-511).
        close_seconds: seconds that a closed connection may take to send submitted requests.
        quiet_seconds: seconds without an answer, beyond those that a request allows the broker, before ``on_silent``.
    """

    software: ClassVar[tuple[str, str]]
    close_seconds: ClassVar[float] = 0.0
    quiet_seconds: ClassVar[float] = inf

    def __init__(
        self,
        host: str,
        port: int,
        client_id: str,
        max_response_bytes: int,
        errors: Errors[E],
        clock: Clock,
        max_idle: float = inf,
    ) -> None:
        self.host = host
        self.port = port
        self.closed = False
        self.error: E | None = None
        self._errors = errors
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._exchange: Exchange[_Waiting] = Exchange(client_id, max_response_bytes)
        self._max_idle = max_idle
        self._transport: asyncio.Transport | None = None
        self._used = clock.monotonic()
        self._alarm: _Timer | None = None
        self._alarm_at = inf
        # Whether the broker has answered since ``on_silent`` said that it doesn't.
        self._speaks = False
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()
        # Requests that wait for a login to be renewed, and how to send them.
        self._held: list[tuple[Result, Callable[[], None]]] | None = None
        self._renewal: _Timer | None = None
        self._renewing: asyncio.Task[None] | None = None

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{self.in_flight} in flight"
        return f"<{type(self).__name__} {self.host}:{self.port} {state}>"

    def login_failed(self, login: Login, error: SaslError | MechanismRefused) -> E:
        """The exception for a login that failed."""
        raise NotImplementedError

    def on_silent(self, name: str, seconds: float, timeout: float) -> None:
        """Called when a broker that has answered before leaves a request of this name without an answer."""

    def on_closed(self) -> None:
        """Called once, when no further requests are accepted and those under way have failed."""

    def on_gone(self) -> None:
        """Called once, when the socket is closed."""

    async def ask_versions(self, timeout: float) -> None:
        """Send ApiVersions in version 3, or in the version that an older broker names (KIP-511).

        Raises the connection's errors, and KafkaError if the broker refuses.
        """
        request = ApiVersionsRequest(
            client_software_name=self.software[0], client_software_version=self.software[1]
        )
        while True:
            version = self._exchange.handshake_version
            answer = await self.submit(request, timeout=timeout, version=version, raw=True)
            try:
                if self._exchange.learn(answer):
                    return
            except ProtocolError as error:
                raise self._no_broker(f"a malformed response to ApiVersions ({error})") from error

    async def log_in(self, login: Login, timeout: float, *, renewed: bool = False) -> None:
        """Authenticate by SASL (KIP-152), and again before the session ends (KIP-368)."""
        try:
            # This may get a token from an OAuth provider, so other requests wait only from then on.
            client = await login.client()
        except SaslError as error:
            if not renewed:
                raise self.login_failed(login, error) from None
            # The session lasts a little longer, and the token may come in time.
            self._renewal = self._clock.call_later(_TOKEN_SECONDS, self._start_renewal, login, timeout)
            return
        if renewed:
            self._held = []
        ask = partial(self.submit, timeout=timeout)
        try:
            seconds = await authenticate(login.mechanism, client, ask, asyncio.to_thread)
        except (MechanismRefused, SaslError) as error:
            raise self.login_failed(login, error) from None
        if seconds > 0:
            self._renewal = self._clock.call_later(seconds, self._start_renewal, login, timeout)

    def _start_renewal(self, login: Login, timeout: float) -> None:
        if not self.closed:
            self._renewing = self._loop.create_task(self._renew(login, timeout))

    async def _renew(self, login: Login, timeout: float) -> None:
        """Log in again; other requests wait meanwhile."""
        try:
            await self.log_in(login, timeout, renewed=True)
        except self._errors.every as error:
            self.close(error)
            return
        held, self._held = self._held or [], None
        for future, sends in held:
            if future.done():
                continue
            try:
                sends()
            except self._errors.every as error:
                future.set_exception(error)

    def version_of(self, api_key: int) -> int:
        """The highest version that both sides support. Raises ``errors.unsupported`` if there is none."""
        try:
            return self._exchange.version_of(api_key)
        except UnsupportedVersionError as error:
            raise self._unsupported(error) from error

    @property
    def features(self) -> Features:
        """The features of the cluster when the connection was opened."""
        return self._exchange.features

    @property
    def gone(self) -> bool:
        """Whether the socket is closed."""
        return self._gone.done()

    @property
    def in_flight(self) -> int:
        """The number of pending requests."""
        return len(self._exchange.pending)

    def submit(
        self, request: Message | Encoded, *, timeout: float, version: int | None = None, raw: bool = False
    ) -> asyncio.Future[Any]:
        """Encode and write a request now; the future gets the decoded response, or the RawAnswer with ``raw``.

        ``version`` defaults to the highest that both sides support. The future fails with ``errors.lost`` when the
        connection breaks, and with ``errors.late`` after ``timeout`` seconds. A timeout closes the connection, because
        later responses couldn't be matched. Cancelling the future only discards the response. A ProduceRequest with
        acks=0 has no response: its future is done, with None, once the transport has its bytes.

        Raises ``errors.lost`` if the connection is closed, ``errors.unsupported`` if the broker can't serve the
        request.
        """
        future: asyncio.Future[Any] = self._loop.create_future()
        self._write(request, future, timeout, version, raw)
        return future

    def _write(
        self, request: Message | Encoded, future: Result, timeout: float, version: int | None, raw: bool
    ) -> None:
        if self.closed:
            raise self._lost()
        if self._held is not None and not isinstance(request, LOGIN):
            self._held.append((future, partial(self._write, request, future, timeout, version, raw)))
            return
        self._used = now = self._clock.monotonic()
        expires = now + timeout
        due = min(expires, now + self.quiet_seconds + getattr(request, "max_wait_ms", 0) / 1000)
        waiting = _Waiting(future, api_title(request.API_KEY or 0), due, expires, timeout)
        try:
            parts, size, answered = self._exchange.request(request, waiting, version=version, raw=raw)
        except LocalProtocolError as error:
            raise self._unsupported(
                error, f"this by the version of {waiting.name} that it speaks: "
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
        """Wait while more than HIGH_WATER bytes are unsent. Raises ``errors.lost`` when the connection breaks."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self.closed:
            raise self._lost()

    def close(self, error: E | None = None) -> None:
        """Accept no further requests; pending ones fail with ``error``, or with ``errors.lost``.

        Without an error, submitted requests are still sent, within ``close_seconds``. A second call does nothing.
        """
        if self.closed:
            return
        self.closed = True
        self.error = error
        self._disarm()
        transport = self._transport
        if transport is None:
            self._finish()
        elif error is None and self.close_seconds and transport.get_write_buffer_size():
            transport.close()
            self._alarm = self._clock.call_later(self.close_seconds, transport.abort)
        else:
            transport.abort()
        self._fail_pending()
        self.on_closed()

    async def wait_closed(self) -> None:
        """Wait until the socket is closed, after ``close``."""
        await asyncio.shield(self._gone)

    def _fail_pending(self) -> None:
        if self._renewal is not None:
            self._renewal.cancel()
        if self._renewing is not None and self._renewing is not asyncio.current_task():
            self._renewing.cancel()
        held, self._held = self._held or [], None
        pending = self._exchange.pending
        waiting = [future for future, _ in held]
        while pending:
            waiting.append(pending.popleft().token.future)
        for future in waiting:
            if not future.done():
                future.set_exception(self._lost())
        self.resume_writing()

    def _finish(self) -> None:
        self._disarm()
        if not self._gone.done():
            self._gone.set_result(None)
            self.on_gone()

    def _set_alarm(self, at: float) -> None:
        self._disarm()
        self._alarm_at = at
        self._alarm = self._clock.call_later(max(0.0, at - self._clock.monotonic()), self._on_alarm)

    def _disarm(self) -> None:
        if self._alarm is not None:
            self._alarm.cancel()
            self._alarm = None
        self._alarm_at = inf

    def _on_alarm(self) -> None:
        """A request may be due or have timed out, or the connection may have been idle for too long."""
        self._alarm = None
        self._alarm_at = inf
        now = self._clock.monotonic()
        waiting = [each.token for each in self._exchange.pending]
        late = next((each for each in waiting if each.expires <= now), None)
        if late is not None:
            if not late.future.done():
                late.future.set_exception(
                    self._errors.late(
                        f"{self.host}:{self.port} did not answer {late.name} within {late.timeout:.3g} s;"
                        " the connection is closed"
                    )
                )
            self.close(self._lost(f"was closed: {late.name} was not answered"))
            return
        overdue = next((each for each in waiting if each.due <= now), None)
        if overdue is not None and self._speaks:
            self._speaks = False
            self.on_silent(overdue.name, overdue.timeout - (overdue.expires - now), overdue.timeout)
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
        if self.closed:
            self._transport.abort()
            return
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

    def eof_received(self) -> None:
        # Pending requests fail now, not only when the transport has been closed.
        self._break(None)

    def connection_lost(self, exc: Exception | None) -> None:
        self._break(exc)
        self._finish()

    def _break(self, exc: Exception | None) -> None:
        if not self.closed:
            how = "the broker closed it" if exc is None else str(exc) or type(exc).__name__
            error = self._lost(f"broke: {how}")
            error.__cause__ = exc
            self.close(error)

    def _lost(self, how: str = "is closed") -> E:
        """A new exception for each caller, so that tracebacks don't mix."""
        error = self.error
        if error is None:
            return self._errors.lost(f"the connection to {self.host}:{self.port} {how}")
        copy = type(error)(*error.args)
        copy.__cause__ = error.__cause__
        return copy

    def _no_broker(self, came: str) -> E:
        return self._errors.no_broker(
            f"{self.host}:{self.port} does not answer as a Kafka broker; it sent {came}"
        )

    def _unsupported(self, error: LocalProtocolError, what: str = "") -> E:
        where = f"{self.host}:{self.port}"
        if not isinstance(error, UnsupportedVersionError):
            return self._errors.unsupported(f"{where} can't be asked {what}{error}")
        return self._errors.unsupported(
            f"{where} can't be asked {error}; another version of the broker or of the client is needed"
        )
