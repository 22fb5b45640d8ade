"""Settings for connecting to ZooKeeper, and their parsing."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from ottla_broker.store.api import StoreFailedError, is_path

_DEFAULT_PORT: Final = 2181
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS to ZooKeeper, with PEM files.

    Attributes:
        trust_file: the trusted certificates; without it the system's.
        key_file: this broker's private key and, behind it, its certificates; ``None`` for no certificate.
        key_password: the password of an encrypted private key.
        verify_hostname: whether ZooKeeper's certificate must name the host in ``connect``.
    """

    trust_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class SaslUser:
    """A login at ZooKeeper by SASL's DIGEST-MD5.

    Attributes:
        nonce: makes what nobody can guess; called on any thread.
    """

    name: str
    password: str = field(repr=False)
    nonce: Callable[[], str] = field(repr=False)


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """The settings for connecting to ZooKeeper.

    Attributes:
        connect: ``HOST:PORT,HOST:PORT/chroot``, as in Kafka's ``zookeeper.connect``.
        session_timeout_ms: ZooKeeper ends the session after this time without a request.
        connection_timeout_ms: how long the first connection, and any request, may take.
        max_in_flight: how many requests may be under way at once.
        set_acl: whether only this user may change new nodes; anyone may read them, except for secrets.
        digest: user and password for ZooKeeper's scheme ``digest``.
        sasl: the user that logs in by SASL.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    set_acl: bool = False
    digest: tuple[str, str] | None = None
    tls: Tls | None = None
    sasl: SaslUser | None = None


class Servers(NamedTuple):
    """A parsed ``zookeeper.connect``: the servers, and the path above all others (``""`` for none)."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str


def parse_connect(text: str) -> Servers:
    """Parse ``HOST[:PORT],…[/chroot]``; an IPv6 address is in brackets.

    Raises ValueError: the text has another form; the message says where.
    """
    names, slash, path = text.strip().partition("/")
    chroot = f"/{path}".rstrip("/") if slash else ""
    if chroot and not is_path(chroot):
        raise ValueError(f"{chroot!r} is not a path in ZooKeeper")
    hosts = tuple(_parse_host(part.strip()) for part in names.split(","))
    return Servers(hosts, chroot)


def _parse_host(text: str) -> tuple[str, int]:
    if text.startswith("["):
        host, bracket, rest = text[1:].partition("]")
        if not bracket or (rest and not rest.startswith(":")):
            raise ValueError(f"{text!r} is not HOST:PORT")
        port = rest[1:] if rest else str(_DEFAULT_PORT)
    else:
        host, colon, port = text.partition(":")
        port = port if colon else str(_DEFAULT_PORT)
    if not host or not (port.isascii() and port.isdigit() and 0 < int(port) <= _MAX_PORT):
        raise ValueError(f"{text!r} is not HOST:PORT")
    try:
        host.encode("idna")
    except UnicodeError as error:
        raise ValueError(f"{host!r} is not a host name") from error
    return host, int(port)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """The TLS context for connections.

    Raises StoreFailedError: a file can't be read or isn't PEM, or the key's password is wrong.
    """
    try:
        context = ssl.create_default_context(cafile=tls.trust_file)
    except OSError as error:
        raise StoreFailedError(
            f"zookeeper.ssl.truststore.location={tls.trust_file}: {_why(error)}; it must be a PEM file with"
            " certificates"
        ) from error
    context.check_hostname = tls.verify_hostname
    if tls.key_file is not None:
        try:
            # Always pass a password: without one, OpenSSL would ask for it at the terminal.
            context.load_cert_chain(tls.key_file, password=tls.key_password or "")
        except (OSError, ValueError) as error:
            raise StoreFailedError(
                f"zookeeper.ssl.keystore.location={tls.key_file}: {_why(error)}; it must be a PEM file with a"
                " private key and its certificates, and zookeeper.ssl.keystore.password the password of a key that is"
                " encrypted"
            ) from error
    return context


def _why(error: Exception) -> str:
    return str(getattr(error, "strerror", None) or error)
