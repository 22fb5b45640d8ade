"""Where ZooKeeper is and how it is spoken to: settings, and how they are read."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from typing import Final, NamedTuple

from ottla_broker.store.api import StoreFailedError, is_path

_DEFAULT_PORT: Final = 2181
_MAX_PORT: Final = 65535


@dataclass(frozen=True, slots=True)
class Tls:
    """TLS towards ZooKeeper, by PEM files.

    Attributes:
        trust_file: the certificates that are trusted; without it those that the system trusts.
        key_file: this broker's private key and, behind it, its certificates; ``None`` for no certificate.
        key_password: what an encrypted private key is encrypted with.
        verify_hostname: whether ZooKeeper's certificate must name the host that was connected to.
    """

    trust_file: str | None = None
    key_file: str | None = None
    key_password: str | None = None
    verify_hostname: bool = True


@dataclass(frozen=True, slots=True)
class ZooKeeperSettings:
    """Where ZooKeeper is, and how it is spoken to.

    Attributes:
        connect: ``HOST:PORT,HOST:PORT/chroot``, as in Kafka's ``zookeeper.connect``.
        session_timeout_ms: after how long without a sign of life ZooKeeper ends the session.
        connection_timeout_ms: how long the first connection, and any request, may take.
        max_in_flight: how many requests may be under way at once.
        set_acl: whether new nodes may be changed by this user alone; all may read them, secrets excepted.
        digest: user and password for ZooKeeper's scheme ``digest``.
    """

    connect: str
    session_timeout_ms: int = 18_000
    connection_timeout_ms: int = 18_000
    max_in_flight: int = 10
    set_acl: bool = False
    digest: tuple[str, str] | None = None
    tls: Tls | None = None


class Servers(NamedTuple):
    """``zookeeper.connect``, read: the servers, and the path that all others are below (``""`` for none)."""

    hosts: tuple[tuple[str, int], ...]
    chroot: str


def parse_connect(text: str) -> Servers:
    """Read ``HOST[:PORT],…[/chroot]``; an IPv6 address stands in brackets.

    Raises:
        ValueError: it is not of this form; the message says where.
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
        raise ValueError(f"{host!r} is no host's name") from error
    return host, int(port)


def tls_context(tls: Tls) -> ssl.SSLContext:
    """What connections are secured with.

    Raises:
        StoreFailedError: a file can't be read or isn't PEM, or the key's password is wrong.
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
            # Some password is always given: without one, OpenSSL would ask for it at the terminal.
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
