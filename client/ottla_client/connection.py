"""A client's connection to one broker: its addresses, its errors, and what they advise."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Callable
from functools import partial
from math import inf
from time import monotonic
from typing import TYPE_CHECKING, Any, Final

from ottla_protocol.aio.connection import BrokerConnection, Errors
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.sasl.login import MechanismRefused
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
ADDRESS_DELAY = 0.25
"""Seconds before the next address of a host is tried in parallel (RFC 8305)."""

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


class _Clock:
    def __init__(self) -> None:
        self.monotonic = monotonic
        self.call_later = asyncio.get_running_loop().call_later


_ERRORS: Final[Errors[ClientError]] = Errors(
    ClientError, ConnectionLostError, RequestTimeoutError, NotABrokerError, UnsupportedApiError
)


class Connection(BrokerConnection[ClientError]):
    """Created by ``open``.

    ``on_close`` is called once, with this connection, when the socket is closed.
    """

    software = SOFTWARE
    close_seconds = 2.0
    quiet_seconds = 5.0

    def __init__(
        self, host: str, port: int, client_id: str, max_response_bytes: int, max_idle: float, tls: bool
    ) -> None:
        super().__init__(host, port, client_id, max_response_bytes, _ERRORS, _Clock(), max_idle)
        self.on_close: Callable[[Connection], None] | None = None
        self._tls = tls

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
            await connect(connection, address, host, port, ssl_context)
            stages[address] = "connected, but no answer to the first request (ApiVersions)"
            try:
                await connection.ask_versions(timeout + 1)  # the limit below expires first
                if login is not None:
                    stages[address] = "connected, but the login was not answered"
                    await connection.log_in(login, timeout + 1)
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

    async def ask_versions(self, timeout: float) -> None:
        """Learn the broker's versions. Raises ClientError, with what the other side may be."""
        try:
            await super().ask_versions(timeout)
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
        except KafkaError as error:
            raise BrokerError(
                error.code, f"{self.host}:{self.port} refused ApiVersions: {error.code.name}"
            ) from error

    def login_failed(self, login: Login, error: SaslError | MechanismRefused) -> AuthenticationError:
        where = f"{self.host}:{self.port}"
        if isinstance(error, SaslError):
            whose, check = f" of {login.user}", "; check sasl_plain_username and sasl_plain_password"
            if not login.user:
                whose = check = ""
            return AuthenticationError(
                f"{where}: the login{whose} by {login.mechanism} failed: {error}{check}"
            )
        if error.code == ErrorCode.UNSUPPORTED_SASL_MECHANISM:
            offered = ", ".join(error.offered)
            return AuthenticationError(
                f"{where} does not offer {login.mechanism}; set sasl_mechanism to one of {offered}"
            )
        return AuthenticationError(
            f"{where} refuses logins ({error}); if its listener needs none, set security_protocol to PLAINTEXT"
            " or SSL"
        )

    def on_silent(self, name: str, seconds: float, timeout: float) -> None:
        _log.warning(
            "%s:%d has not answered %s for %.0f s; waiting up to %.0f s",
            self.host,
            self.port,
            name,
            seconds,
            timeout,
        )

    def on_gone(self) -> None:
        if self.on_close is not None:
            self.on_close(self)

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


def _of_addresses(failures: list[Exception]) -> Exception:
    """One error for all addresses of a host: of the most specific type, with all of them in its text."""
    first = next((each for each in failures if not isinstance(each, ConnectError)), failures[0])
    if len(failures) == 1 or not isinstance(first, ConnectError):
        return first
    return ConnectError("; ".join(dict.fromkeys(str(each) for each in failures)))
