"""Tries what a stranger could do with a listener: connect, look at its certificate, ask, and guess passwords."""

from __future__ import annotations

import asyncio
import ssl
import warnings
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from secrets import token_hex
from typing import Final

from ottla_client.connection import Connection
from ottla_client.errors import ClientError, ConnectError
from ottla_client.transport import connect, resolve
from ottla_protocol.messages.metadata import MetadataRequest
from ottla_protocol.messages.sasl_handshake import SaslHandshakeRequest
from ottla_protocol.sasl.login import SaslLogin
from ottla_protocol.sasl.mechanism import MECHANISMS, PLAIN

from .certificates import Validity, read_validity

CLIENT_ID: Final = "ottla-security-check"
DEFAULT_LOGINS: Final = (
    ("admin", "admin-secret"),
    ("alice", "alice-secret"),
    ("admin", "admin"),
    ("kafka", "kafka"),
    ("user", "password"),
)
"""Those of Kafka's documentation and of images, which programs that look for open brokers try first."""

_OLD_VERSIONS: Final = {"TLSv1": ssl.TLSVersion.TLSv1, "TLSv1.1": ssl.TLSVersion.TLSv1_1}


@dataclass(slots=True)
class Probe:
    """The facts that a stranger found out about one listener.

    Attributes:
        failed: why nothing could be tried; empty if it could.
        anonymous: whether the broker answered Metadata without a login.
        mechanisms: the mechanisms that it offers.
        certificate: when its certificate is valid; None without TLS, or if it can't be read.
        untrusted: why the command's own authorities don't trust its certificate.
        old_versions: the TLS versions older than 1.2 that it accepts.
        guessed: logins that succeeded, as mechanism and user.
    """

    failed: str = ""
    anonymous: bool = False
    mechanisms: list[str] = field(default_factory=list)
    certificate: Validity | None = None
    untrusted: str = ""
    old_versions: list[str] = field(default_factory=list)
    guessed: list[tuple[str, str]] = field(default_factory=list)


@dataclass(eq=False)
class Prober:
    """Tries one listener after the other; each attempt has ``timeout`` seconds.

    ``trusting`` is the context that the command's options make; None for plain text.
    """

    _timeout: float
    _trusting: ssl.SSLContext | None
    _logins: Sequence[tuple[str, str]]

    async def probe(self, host: str, port: int, protocol: str) -> Probe:
        found = Probe()
        tls = _careless() if protocol.endswith("SSL") else None
        try:
            if tls is not None:
                await self._look_at_tls(found, host, port)
            connection = await self._open(host, port, tls)
        except ClientError as error:
            if not protocol.endswith("SSL") or found.certificate is None:
                found.failed = str(error)
            return found
        try:
            if protocol.startswith("SASL_"):
                found.mechanisms = await self._mechanisms(connection)
            else:
                await connection.submit(MetadataRequest(topics=[]), timeout=self._timeout)
                found.anonymous = True
        except ClientError:
            # It serves nothing without a login, and names no mechanism: ``found`` says so.
            pass
        finally:
            await _close(connection)
        for mechanism in found.mechanisms:
            if mechanism in MECHANISMS and (mechanism == PLAIN or mechanism.startswith("SCRAM-")):
                await self._guess(found, host, port, tls, mechanism)
        return found

    async def certificate(self, host: str, port: int) -> Validity | None:
        """The dates of a listener's certificate; None if it can't be read. Raises ConnectError."""
        found = await self._certificate(host, port, _careless())
        try:
            return read_validity(found or b"")
        except ValueError:
            return None

    async def _open(
        self, host: str, port: int, tls: ssl.SSLContext | None, login: SaslLogin | None = None
    ) -> Connection:
        return await Connection.open(
            host, port, client_id=CLIENT_ID, timeout=self._timeout, ssl_context=tls, login=login
        )

    async def _mechanisms(self, connection: Connection) -> list[str]:
        """The mechanisms of the listener, which it names when it doesn't know the one that was asked for."""
        answer = await connection.submit(SaslHandshakeRequest(mechanism="NONE"), timeout=self._timeout)
        return list(answer.mechanisms)

    async def _guess(
        self, found: Probe, host: str, port: int, tls: ssl.SSLContext | None, mechanism: str
    ) -> None:
        async def attempt(user: str, password: str) -> bool:
            login = SaslLogin(mechanism, user, password, partial(token_hex, 16))
            try:
                await _close(await self._open(host, port, tls, login))
            except ClientError:
                return False  # not let in
            return True

        accepted = await asyncio.gather(*(attempt(*login) for login in self._logins))
        for (user, _), right in zip(self._logins, accepted, strict=True):
            if right:
                found.guessed.append((mechanism, user))

    async def _look_at_tls(self, found: Probe, host: str, port: int) -> None:
        found.certificate = await self.certificate(host, port)
        if self._trusting is not None:
            try:
                await self._certificate(host, port, self._trusting)
            except ConnectError as error:
                if isinstance(error.__cause__, ssl.SSLCertVerificationError):
                    found.untrusted = error.__cause__.verify_message
        for name, version in _OLD_VERSIONS.items():
            old = _careless()
            with warnings.catch_warnings():
                # Python warns of versions this old, which is the point here.
                warnings.simplefilter("ignore", DeprecationWarning)
                old.minimum_version = old.maximum_version = version
            # Systems' security levels forbid them to their own programs.
            old.set_ciphers("ALL:@SECLEVEL=0")
            try:
                await self._certificate(host, port, old)
            except ClientError:
                continue  # refused, as it should be
            found.old_versions.append(name)

    async def _certificate(self, host: str, port: int, context: ssl.SSLContext) -> bytes | None:
        """Shake hands; return the broker's certificate in DER. Raises ConnectError."""
        try:
            async with asyncio.timeout(self._timeout):
                address = (await resolve(host, port))[0]
                transport = await connect(asyncio.Protocol(), address, host, port, context)
        except TimeoutError:
            raise ConnectError(f"{host}:{port} did not answer in TLS within {self._timeout:.3g} s") from None
        try:
            shown = transport.get_extra_info("ssl_object")
            certificate: bytes | None = shown.getpeercert(binary_form=True)
            return certificate
        finally:
            transport.abort()


def _careless() -> ssl.SSLContext:
    """A context that trusts everyone: the check looks at certificates itself."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


async def _close(connection: Connection) -> None:
    connection.close()
    await connection.wait_closed()
