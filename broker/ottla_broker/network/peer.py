"""This broker's connections to other brokers: to fetch, and to speak as or with the controller.

Requests go out at once and are answered in order. A connection serves one purpose, so that a fetch that waits for data
delays nothing else.
"""

from __future__ import annotations

import asyncio
import errno
import select
import socket
from collections.abc import Callable, Iterable
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.network.resolver import Resolver
from ottla_protocol.aio.connection import BrokerConnection, Errors
from ottla_protocol.errors import KafkaError
from ottla_protocol.sasl.login import MechanismRefused
from ottla_protocol.sasl.mechanism import SaslError

if TYPE_CHECKING:
    import ssl

    from ottla_broker.clock import Clock
    from ottla_protocol.sasl.login import Login
    from ottla_protocol.schema import Message

MAX_ANSWER_BYTES: Final = 512 * 1024 * 1024
"""The largest response accepted, in bytes: replica.fetch.max.bytes of many partitions."""

RECONNECT_SECONDS: Final = (0.05, 1.0)
"""The first and the longest pause after a peer could not be reached; it doubles each time."""

VANISHED_SECONDS: Final = 1.0
"""How long a machine's name or route must be missing before it counts as gone; both may be missing briefly."""

_ENDED: Final = getattr(select, "POLLRDHUP", 0)
"""The peer sends no more; outside Linux poll() reports that unasked, as it does errors."""


class PeerError(ConnectionError):
    """The request was not sent, or not answered. The peer may have carried it out."""


class PeerUnreachableError(PeerError):
    """No connection.

    Attributes:
        refused: no process listens there. The peer's machine said so, or the machine has vanished for a while (see
            :class:`Peers`).
        vanished: the name of the peer's machine has no address, or no route leads there.
    """

    def __init__(self, message: str, refused: bool, vanished: bool = False) -> None:
        super().__init__(message)
        self.refused = refused
        self.vanished = vanished


class PeerTimeoutError(PeerError):
    """No answer in time; the connection is closed."""


class Purpose(Enum):
    """The use of a connection: one connection for each, so that none waits behind another's long responses."""

    CONTROL = "control"
    WATCH = "watch"
    MARKERS = "markers"
    VERIFICATION = "verification"
    SHARE_STATE = "share state"
    OTHER = "other"


_ERRORS: Final[Errors[PeerError]] = Errors(PeerError, PeerError, PeerTimeoutError, PeerError, PeerError)


class PeerConnection(BrokerConnection[PeerError]):
    """Made by :meth:`open`. Owned by the loop thread.

    ``on_close`` is called once when an open connection closes, with the reason (None: this side closed it).
    """

    software = ("ottla-broker", "0.1.0")

    def __init__(self, host: str, port: int, client_id: str, clock: Clock) -> None:
        super().__init__(host, port, client_id, MAX_ANSWER_BYTES, _ERRORS, clock)
        self.on_close: Callable[[ConnectionError | None], None] | None = None

    @classmethod
    async def open(
        cls,
        host: str,
        port: int,
        *,
        client_id: str,
        timeout: float,
        clock: Clock,
        resolver: Resolver | None = None,
        tls: ssl.SSLContext | None = None,
        login: Login | None = None,
    ) -> PeerConnection:
        """Connect, over ``tls`` if given, learn the peer's API versions, and log in, within ``timeout`` seconds.

        Raises PeerUnreachableError.
        """
        where = f"{host}:{port}"
        connection = cls(host, port, client_id, clock)
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(timeout):
                addresses = await (resolver or Resolver()).find(host)
                for index, address in enumerate(addresses, 1):
                    try:
                        await loop.create_connection(
                            lambda: connection,
                            address,
                            port,
                            ssl=tls,
                            server_hostname=None if tls is None else host,
                        )
                        break
                    except OSError:
                        if index == len(addresses):
                            raise
                await connection.ask_versions(timeout)
                if login is not None:
                    await connection.log_in(login, timeout)
        except TimeoutError:
            connection.close()
            raise PeerUnreachableError(f"{where} did not answer within {timeout:.3g} s", False) from None
        except (PeerError, KafkaError) as error:
            connection.close()
            raise PeerUnreachableError(str(error), False) from error
        except OSError as error:
            connection.close()
            refused = isinstance(error, ConnectionRefusedError | ConnectionResetError)
            raise PeerUnreachableError(
                f"{where}: {getattr(error, 'verify_message', None) or error.strerror or error}",
                refused,
                _has_vanished(error),
            ) from error
        except BaseException:
            connection.close()
            raise
        return connection

    def login_failed(self, login: Login, error: SaslError | MechanismRefused) -> PeerError:
        where = f"{self.host}:{self.port}"
        if isinstance(error, SaslError):
            return PeerError(f"{where}: this broker's login failed: {error}")
        offers = f", it offers {', '.join(error.offered)}" if error.offered else f" ({error})"
        return PeerError(f"{where} does not offer {login.mechanism}{offers}")

    def on_closed(self) -> None:
        if self.on_close is not None:
            self.on_close(self.error)

    def check_closed(self) -> None:
        """Close the connection if the peer has closed it, without waiting for the event loop to report that."""
        if not self.closed and self._transport is not None:
            poll = select.poll()
            poll.register(self._transport.get_extra_info("socket").fileno(), _ENDED)
            if poll.poll(0):
                self._break(None)


def _has_vanished(error: OSError) -> bool:
    """Whether an attempt to connect found no machine. A silent name server doesn't count."""
    if isinstance(error, socket.gaierror):
        return error.errno in (socket.EAI_NONAME, socket.EAI_NODATA)
    return error.errno in (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)


class _Link:
    """The connection to one broker for one purpose, or the attempt to open it."""

    __slots__ = ("connection", "failures", "not_before", "opening")

    def __init__(self) -> None:
        self.connection: PeerConnection | None = None
        self.opening: asyncio.Task[PeerConnection] | None = None
        self.failures = 0
        self.not_before = 0.0


class Peers:
    """The other brokers, by id, and the connections to them. Owned by the loop thread.

    A container that ends takes its name and address with it, so that no machine refuses a connection. A broker that was
    connected, and whose machine can't be found for ``VANISHED_SECONDS``, is reported as refusing until a connection
    succeeds or an attempt fails in another way.
    """

    def __init__(
        self,
        client_id: str,
        clock: Clock,
        connect_timeout: float = 10.0,
        tls: Callable[[], ssl.SSLContext] | None = None,
        login: Login | None = None,
    ) -> None:
        """``connect_timeout``: seconds for one attempt to connect. ``tls`` returns the TLS context in force."""
        self._tls = tls
        self._login = login
        self._client_id = client_id
        self._clock = clock
        self._connect_timeout = connect_timeout
        self._addresses: dict[int, tuple[str, int]] = {}
        self._links: dict[tuple[int, Purpose], _Link] = {}
        self._closed = False
        self._resolver = Resolver()
        # Brokers that have been connected, and since when the machine of one of them can't be found.
        self._seen: set[int] = set()
        self._vanished: dict[int, float] = {}
        # Connections and attempts that are ending.
        self._closing: set[asyncio.Future[Any]] = set()

    def set_address(self, broker_id: int, host: str, port: int) -> None:
        """Set a broker's address. Connections to its old address are closed."""
        if self._addresses.get(broker_id) != (host, port):
            self.forget(broker_id)
            self._addresses[broker_id] = (host, port)

    def forget(self, broker_id: int) -> None:
        """Forget a broker that has gone, and close its connections."""
        self._addresses.pop(broker_id, None)
        self._seen.discard(broker_id)
        self._vanished.pop(broker_id, None)
        for key in [key for key in self._links if key[0] == broker_id]:
            self._drop(self._links.pop(key))

    def hang_up(self, broker_id: int, purposes: Iterable[Purpose]) -> None:
        """Close the connections to a broker for these purposes: requests under way fail, and the next ones connect."""
        for purpose in purposes:
            link = self._links.pop((broker_id, purpose), None)
            if link is not None:
                self._drop(link)

    def address(self, broker_id: int) -> tuple[str, int] | None:
        return self._addresses.get(broker_id)

    async def connection(self, broker_id: int, purpose: Purpose, timeout: float) -> PeerConnection:
        """An open connection, opened if necessary, within ``timeout`` seconds.

        A peer that could not be reached gets a pause before the next attempt.

        Raises PeerUnreachableError.
        """
        address = self._known_address(broker_id)
        link = self._links.setdefault((broker_id, purpose), _Link())
        if link.connection is not None and not link.connection.closed:
            return link.connection
        if link.opening is None:
            link.opening = asyncio.ensure_future(self._open_link(broker_id, link, *address))
            # Marks a failure as retrieved; the next caller tries again.
            link.opening.add_done_callback(lambda task: task.cancelled() or task.exception())
        try:
            async with asyncio.timeout(timeout):
                return await asyncio.shield(link.opening)
        except TimeoutError:
            raise PeerUnreachableError(
                f"broker {broker_id} at {address[0]}:{address[1]} was not reached within {timeout:.3g} s",
                False,
            ) from None
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise
            # The attempt was cancelled, not this task.
            raise PeerUnreachableError(f"broker {broker_id} has moved", False) from None

    async def connect(self, broker_id: int, timeout: float) -> PeerConnection:
        """Open a connection for the caller alone, which closes it. Raises PeerUnreachableError."""
        return await self._open(*self._known_address(broker_id), timeout)

    def _known_address(self, broker_id: int) -> tuple[str, int]:
        address = self._addresses.get(broker_id)
        if address is None or self._closed:
            raise PeerUnreachableError(f"the address of broker {broker_id} is not known", False)
        return address

    async def _open(self, host: str, port: int, timeout: float) -> PeerConnection:
        return await PeerConnection.open(
            host,
            port,
            client_id=self._client_id,
            timeout=timeout,
            clock=self._clock,
            resolver=self._resolver,
            tls=None if self._tls is None else self._tls(),
            login=self._login,
        )

    async def _open_link(self, broker_id: int, link: _Link, host: str, port: int) -> PeerConnection:
        try:
            wait = link.not_before - self._clock.monotonic()
            if wait > 0:
                await self._clock.sleep(wait)
            connection = await self._open(host, port, self._connect_timeout)
        except PeerUnreachableError as error:
            error.refused = error.refused or self._stays_away(broker_id, error)
            least, most = RECONNECT_SECONDS
            link.not_before = self._clock.monotonic() + min(most, least * 2**link.failures)
            link.failures = min(link.failures + 1, 10)
            raise
        finally:
            link.opening = None
        self._seen.add(broker_id)
        self._vanished.pop(broker_id, None)
        link.failures = 0
        link.connection = connection
        return connection

    def _stays_away(self, broker_id: int, error: PeerUnreachableError) -> bool:
        """Whether a broker's machine has stayed away for ``VANISHED_SECONDS``."""
        if not error.vanished:
            self._vanished.pop(broker_id, None)
            return False
        now = self._clock.monotonic()
        since = self._vanished.setdefault(broker_id, now)
        return broker_id in self._seen and now - since >= VANISHED_SECONDS

    async def request(
        self, broker_id: int, request: Message, *, timeout: float, purpose: Purpose = Purpose.OTHER
    ) -> Any:
        """Send a request to a broker and return its response. Raises PeerError."""
        deadline = self._clock.monotonic() + timeout
        connection = await self.connection(broker_id, purpose, timeout)
        return await connection.submit(request, timeout=max(0.001, deadline - self._clock.monotonic()))

    async def close(self) -> None:
        """Close all connections and open no others."""
        self._closed = True
        for broker_id in list(self._addresses):
            self.forget(broker_id)
        while self._closing:
            await asyncio.wait(self._closing)

    def _drop(self, link: _Link) -> None:
        if link.opening is not None:
            link.opening.cancel()
            self._closing.add(link.opening)
            link.opening.add_done_callback(self._closing.discard)
        if link.connection is not None:
            link.connection.close()
            closing = asyncio.ensure_future(link.connection.wait_closed())
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
