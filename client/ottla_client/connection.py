"""One connection to one broker: requests go out as they come, answers come back in order.

Reading. What arrives goes into a scratch buffer; small answers are copied out of it. An answer that is larger than
what has come of it gets a buffer of its own size, and the rest is received straight into that, so views of an answer
stay valid for as long as somebody holds them.

Writing. A request is encoded and handed to the transport in the call that submits it. Answers are matched to requests
by their order, and the correlation id has to agree: with one that does not, nothing that follows can be trusted.

Everything here runs on the event loop's thread.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from struct import Struct
from time import monotonic
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from ottla_protocol.api_keys import ApiKey
from ottla_protocol.errors import LocalProtocolError, ProtocolError
from ottla_protocol.header import (
    RequestHeader,
    encode_request_header,
    parse_response_header,
    response_header_is_flexible,
)
from ottla_protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse
from ottla_protocol.registry import DECLARED, response_class

from .codes import error_code
from .dialling import dial, resolve
from .errors import (
    BrokerError,
    ClientError,
    ConnectError,
    ConnectionLostError,
    NotABrokerError,
    RequestTimeoutError,
    UnsupportedApiError,
)
from .racing import AllFailed, race

if TYPE_CHECKING:
    import ssl

    from ottla_protocol.schema import Message

MAX_RESPONSE_BYTES = 128 * 1024 * 1024
"""The largest answer that is taken. Text where a size should be (HTTP, SMTP, SSH) reads as a larger one."""
SCRATCH_BYTES = 64 * 1024
MOVED = 4096
"""The start of an answer is moved to the front of the scratch buffer up to this many bytes, else it gets its own."""
HIGH_WATER = 1024 * 1024
"""Bytes that may wait in the transport before ``drain`` waits."""
JOINED = 32 * 1024
"""Requests up to this many bytes are joined into one piece before they are written."""
CLOSE_SECONDS = 2.0
"""How long a connection that is closed may take to send what has been submitted."""
ADDRESS_DELAY = 0.25
"""Seconds until the next address of a host is tried beside the one before it (RFC 8305)."""

SOFTWARE = ("ottla", "0.1.0")
"""What a broker is told of this client (KIP-511)."""

_SIZE = Struct(">i")
_PRODUCE = int(ApiKey.PRODUCE)
_API_VERSIONS = int(ApiKey.API_VERSIONS)


class RawAnswer(NamedTuple):
    """An answer that is not decoded: what follows its header, and the version that it is in."""

    body: memoryview
    version: int


class _Api:
    """One version of an API on this connection: how its header is written, and how its answers are read."""

    __slots__ = ("flexible_header", "key", "name", "prefix", "response", "tail", "version")

    def __init__(self, key: int, version: int, client_id: str) -> None:
        header = encode_request_header(RequestHeader(key, version, 0, client_id))
        self.key = key
        self.version = version
        self.name = _name(key)
        self.prefix = header[:4]
        self.tail = header[8:]
        self.flexible_header = response_header_is_flexible(key, version)
        self.response = response_class(key)


class _Pending(NamedTuple):
    """A request that waits for its answer; ``expires`` on the monotonic clock."""

    correlation: int
    api: _Api
    raw: bool
    future: asyncio.Future[Any]
    expires: float
    timeout: float


class Connection(asyncio.BufferedProtocol):
    """Made by ``open``. ``closed`` is True from the moment that it takes no more requests.

    ``on_close`` is called once, when the connection has gone, with the error that ended it (None: it was closed by
    this side, or idle).
    """

    def __init__(
        self, host: str, port: int, client_id: str, max_response_bytes: int, max_idle: float
    ) -> None:
        self.host = host
        self.port = port
        self.closed = False
        self.error: ClientError | None = None
        self.on_close: Callable[[Connection], None] | None = None
        self._loop = asyncio.get_running_loop()
        self._client_id = client_id
        self._max_response_bytes = max_response_bytes
        self._max_idle = max_idle
        self._transport: asyncio.Transport | None = None
        self._theirs: dict[int, tuple[int, int]] = {}
        self._newest: dict[int, _Api] = {}
        self._chosen: dict[tuple[int, int], _Api] = {}
        self._correlation = 0
        self._pending: deque[_Pending] = deque()
        self._scratch = memoryview(bytearray(SCRATCH_BYTES))
        self._end = 0
        self._large: memoryview | None = None
        self._filled = 0
        self._used = monotonic()
        self._alarm: asyncio.TimerHandle | None = None
        self._alarm_at = inf
        self._writable: asyncio.Future[None] | None = None
        self._gone: asyncio.Future[None] = self._loop.create_future()

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"{len(self._pending)} in flight"
        return f"<Connection {self.host}:{self.port} {state}>"

    # ---- opening

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        ssl_context: ssl.SSLContext | None = None,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
        max_idle: float = inf,
    ) -> Connection:
        """Connect, over TLS if there is a context, and ask what the broker speaks, all within ``timeout`` seconds.

        Each address of the host gets its turn. With ``max_idle`` the connection closes itself once it has not been
        used for so many seconds. Raises ConnectError where nobody answers in time, NotABrokerError where something
        else does.
        """
        stages: dict[str, str] = {}

        async def attempt(address: str) -> Connection:
            connection = cls(host, port, client_id, max_response_bytes, max_idle)
            stages[address] = "no TCP connection" if ssl_context is None else "no TLS connection"
            connection._transport = await dial(connection, address, host, port, ssl_context)
            stages[address] = "connected, but no answer to the first request (ApiVersions)"
            try:
                await connection._ask_versions(timeout + 1)  # the limit below comes first
            except BaseException:
                connection.close(ConnectionLostError(f"{host}:{port}: the handshake was not finished"))
                raise
            return connection

        try:
            async with asyncio.timeout(timeout):
                addresses = await resolve(host, port)
                attempts = [partial(attempt, address) for address in addresses]
                return await race(attempts, ADDRESS_DELAY, lambda unneeded: unneeded.close())
        except TimeoutError:
            states = "; ".join(f"{address}: {stage}" for address, stage in stages.items())
            raise ConnectError(
                f"{host}:{port} did not answer as a broker within {timeout:.3g} s"
                f" ({states or 'its name was not resolved'})"
            ) from None
        except AllFailed as all_failed:
            raise _of_addresses(list(all_failed.failures.values())) from None

    async def _ask_versions(self, timeout: float) -> None:
        """ApiVersions in version 3, or in the one that a broker names that does not have it (KIP-511)."""
        version = 3
        while True:
            request = ApiVersionsRequest(
                client_software_name=SOFTWARE[0], client_software_version=SOFTWARE[1]
            )
            try:
                answer = await self.submit(request, timeout=timeout, version=version, raw=True)
            except ConnectionLostError as error:
                raise ConnectError(
                    f"{error}; it was asked ApiVersions: a TLS listener, a broker older than 0.10,"
                    " or not a broker at all"
                ) from error
            # A version that it does not have is answered in version 0.
            refused = bytes(answer.body[:2]) == b"\x00\x23"
            try:
                told = ApiVersionsResponse.decode(answer.body, 0 if refused else version)
            except ProtocolError as error:
                raise self._no_broker(f"an answer to ApiVersions that can't be read ({error})") from error
            theirs = {each.api_key: (each.min_version, each.max_version) for each in told.api_keys}
            if refused and version > 0:
                version = min(theirs.get(_API_VERSIONS, (0, 0))[1], version - 1)
                continue
            if told.error_code:
                code = error_code(told.error_code)
                raise BrokerError(code, f"{self.host}:{self.port} refused ApiVersions: {code.name}")
            self._theirs = theirs
            return

    # ---- what the broker speaks

    @property
    def versions(self) -> dict[int, tuple[int, int]]:
        """By API key: the lowest and highest version that both sides speak; APIs with none are left out."""
        return {int(key): both for key in DECLARED if (both := self._common(key)) is not None}

    def version_of(self, api_key: int) -> int:
        """The highest version that both sides speak. Raises UnsupportedApiError where there is none."""
        api = self._newest.get(api_key)
        return (api or self._newest_of(api_key)).version

    def _common(self, api_key: int) -> tuple[int, int] | None:
        theirs = self._theirs.get(api_key)
        if theirs is None:
            return None
        first, last = response_class(api_key).VERSIONS
        low, high = max(first, theirs[0]), min(last, theirs[1])
        return (low, high) if low <= high else None

    def _newest_of(self, api_key: int) -> _Api:
        both = self._common(api_key)
        if both is None:
            theirs = self._theirs.get(api_key)
            has = "does not have it" if theirs is None else f"has versions {theirs[0]} to {theirs[1]} of it"
            first, last = response_class(api_key).VERSIONS
            raise UnsupportedApiError(
                f"{_name(api_key)} can't be asked of {self.host}:{self.port}: the broker {has},"
                f" this client speaks {first} to {last}; another version of the broker or of the client is needed"
            )
        api = self._newest[api_key] = self._version(api_key, both[1])
        return api

    def _version(self, api_key: int, version: int) -> _Api:
        api = self._chosen.get((api_key, version))
        if api is None:
            both = self._common(api_key)
            if self._theirs and (both is None or not both[0] <= version <= both[1]):
                raise UnsupportedApiError(
                    f"{self.host}:{self.port} does not speak version {version} of {_name(api_key)}, but"
                    f" {'none' if both is None else f'{both[0]} to {both[1]}'} of those that this client has"
                )
            api = self._chosen[api_key, version] = _Api(api_key, version, self._client_id)
        return api

    # ---- requests

    @property
    def gone(self) -> bool:
        """Whether the socket is closed."""
        return self._gone.done()

    @property
    def in_flight(self) -> int:
        """Requests that wait for their answers."""
        return len(self._pending)

    def submit(
        self, request: Message, *, timeout: float, version: int | None = None, raw: bool = False
    ) -> asyncio.Future[Any]:
        """Encode and write a request now; the future has the decoded response, or the RawAnswer with ``raw``.

        Without ``version`` the highest that both sides speak is used. The future fails with ConnectionLostError when
        the connection breaks, with RequestTimeoutError after ``timeout`` seconds: the connection is closed then, since
        what is behind the missing answer could not be told apart. Cancelling the future forgets the answer only. A
        ProduceRequest with acks=0 has no answer: its future is done, with None, once the transport has its bytes.

        Raises, at once, ConnectionLostError when the connection is closed, UnsupportedApiError when the broker can't
        be asked this.
        """
        if self.closed:
            raise self._lost()
        key: Any = request.API_KEY
        if version is None:
            api = self._newest.get(key) or self._newest_of(key)
        else:
            api = self._chosen.get((key, version)) or self._version(key, version)
        try:
            parts = request.encode_parts(api.version)
        except LocalProtocolError as error:
            raise UnsupportedApiError(
                f"{self.host}:{self.port} can't be asked this in version {api.version} of {api.name}: {error}"
            ) from error
        correlation = self._correlation
        self._correlation = (correlation + 1) & 0x7FFF_FFFF
        tail = api.tail
        size = 8 + len(tail) + sum(map(len, parts))
        head = _SIZE.pack(size) + api.prefix + _SIZE.pack(correlation) + tail
        future = self._loop.create_future()
        self._used = now = monotonic()
        transport = self._transport
        assert transport is not None
        if key != _PRODUCE or request.acks:  # type: ignore[attr-defined]
            expires = now + timeout
            self._pending.append(_Pending(correlation, api, raw, future, expires, timeout))
            if expires < self._alarm_at:
                self._set_alarm(expires)
        else:
            future.set_result(None)
        if size <= JOINED:
            transport.write(b"".join((head, *parts)))
        else:
            transport.writelines((head, *parts))
        return future

    async def drain(self) -> None:
        """Wait while more than HIGH_WATER bytes wait to be sent. Raises ConnectionLostError when it breaks."""
        while self._writable is not None:
            await asyncio.shield(self._writable)
        if self.closed:
            raise self._lost()

    # ---- closing

    def close(self, error: ClientError | None = None) -> None:
        """Take no more requests; those that wait fail with ``error``, or with ConnectionLostError.

        Without an error what has been submitted is still sent, for CLOSE_SECONDS at most. A second call does nothing.
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
        """A fresh exception for whoever has to be told that the connection is no more."""
        error = self.error
        if error is None:
            return ConnectionLostError(f"the connection to {self.host}:{self.port} is closed")
        copy = type(error)(*error.args)
        copy.__cause__ = error.__cause__
        return copy

    def _fail_pending(self) -> None:
        pending, self._pending = self._pending, deque()
        for each in pending:
            if not each.future.done():
                each.future.set_exception(self._lost())
        if self._writable is not None:
            self._writable.set_result(None)
            self._writable = None

    def _finish(self) -> None:
        """The socket has gone."""
        self._disarm()
        if not self._gone.done():
            self._gone.set_result(None)
            if self.on_close is not None:
                self.on_close(self)

    # ---- time

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
        """Something may be due: a request's timeout, or the end of an idle connection."""
        self._alarm = None
        self._alarm_at = inf
        now = monotonic()
        late = next((each for each in self._pending if each.expires <= now), None)
        if late is not None:
            where = f"{self.host}:{self.port}"
            if not late.future.done():
                late.future.set_exception(
                    RequestTimeoutError(
                        f"{where} did not answer {late.api.name} within {late.timeout:.3g} s; the connection is closed"
                    )
                )
            self.close(
                ConnectionLostError(f"the connection to {where} was closed: {late.api.name} was not answered")
            )
            return
        due = min((each.expires for each in self._pending), default=inf)
        if not self._pending:
            due = self._used + self._max_idle
            if due <= now:
                self.close()
                return
        if due < inf:
            self._set_alarm(due)

    # ---- the transport's side

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        # No isinstance: uvloop's transports are none of asyncio's.
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
        if self._large is not None:
            return self._large[self._filled :]
        return self._scratch[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        if self.closed:
            return
        large = self._large
        if large is None:
            self._end += nbytes
            self._take_answers()
            return
        self._filled += nbytes
        if self._filled == len(large):
            self._large = None
            self._answer(large)

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.closed:
            self.closed = True
            how = "the broker closed it" if exc is None else str(exc) or type(exc).__name__
            self.error = ConnectionLostError(f"the connection to {self.host}:{self.port} broke: {how}")
            self.error.__cause__ = exc
            self._fail_pending()
        self._finish()

    def _take_answers(self) -> None:
        """Hand over the whole answers in the scratch buffer, and keep or move what is left."""
        scratch, end = self._scratch, self._end
        position = 0
        while end - position >= 4:
            (size,) = _SIZE.unpack_from(scratch, position)
            if not 4 <= size <= self._max_response_bytes:
                self.close(self._not_an_answer(size, bytes(scratch[position : min(end, position + 64)])))
                return
            start, stop = position + 4, position + 4 + size
            if stop > end:
                if size + 4 > len(scratch) or end - start > MOVED:
                    self._large = memoryview(bytearray(size))
                    self._filled = end - start
                    self._large[: self._filled] = scratch[start:end]
                    position = end
                break
            self._answer(memoryview(bytes(scratch[start:stop])))
            if self.closed:
                return
            position = stop
        if position:
            left = end - position
            if left:
                scratch[:left] = bytes(scratch[position:end])
            self._end = left

    def _answer(self, frame: memoryview) -> None:
        """An answer, without its size, has come."""
        pending = self._pending
        (correlation,) = _SIZE.unpack_from(frame)
        if not pending or correlation != pending[0].correlation:
            expected = f"{pending[0].correlation} ({pending[0].api.name})" if pending else "none"
            self.close(
                self._no_broker(
                    f"an answer with the correlation id {correlation} where {expected} was expected"
                )
            )
            return
        _, api, raw, future, _, _ = pending.popleft()
        if future.done():
            return
        try:
            position = 4
            if api.flexible_header:
                position = parse_response_header(frame, api.key, api.version)[1]
            if raw:
                future.set_result(RawAnswer(frame[position:], api.version))
            else:
                future.set_result(api.response.decode(frame, api.version, position))
        except ProtocolError as error:
            failure = self._no_broker(
                f"an answer to {api.name} version {api.version} that can't be read ({error})"
            )
            future.set_exception(failure)
            self.close(failure)

    def _not_an_answer(self, size: int, start: bytes) -> ClientError:
        text = start.split(b"\r\n")[0].decode("ascii", "replace")
        if start[:2] == b"\x15\x03" or start[:2] == b"\x16\x03":
            return self._no_broker('TLS: it is a TLS listener, set security_protocol="SSL"')
        if start[:5] == b"HTTP/":
            return self._no_broker(f"{text!r}: it is a web server; give the address of a Kafka broker")
        if text.isprintable() and start[:4].isascii():
            return self._no_broker(f"{text!r}; give the address of a Kafka broker")
        if size > self._max_response_bytes:
            return self._no_broker(
                f"an answer of {size} bytes; {self._max_response_bytes} is the most that is taken"
            )
        return self._no_broker(f"an answer of {size} bytes")

    def _no_broker(self, came: str) -> NotABrokerError:
        return NotABrokerError(f"{self.host}:{self.port} does not answer as a Kafka broker; it sent {came}")


def _name(api_key: int) -> str:
    """``CreateTopics``, as Kafka's documentation has it."""
    return "".join(word.capitalize() for word in ApiKey(api_key).name.split("_"))


def _of_addresses(failures: list[Exception]) -> Exception:
    """One error for what a host's addresses did: the most telling if they differ, all of them in its text."""
    told = next((each for each in failures if not isinstance(each, ConnectError)), failures[0])
    if len(failures) == 1 or not isinstance(told, ConnectError):
        return told
    return ConnectError("; ".join(dict.fromkeys(str(each) for each in failures)))
