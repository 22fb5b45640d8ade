"""Sockets: resolving addresses, connecting over TCP and TLS, and the errors for failures."""

from __future__ import annotations

import asyncio
import os
import socket
import ssl
from typing import TypeVar

from .errors import ConnectError

P = TypeVar("P", bound=asyncio.BaseProtocol)

TLS_SHUTDOWN = 1.0
"""Seconds that the broker may take to close TLS."""
# OpenSSL's X509_V_ERR_HOSTNAME_MISMATCH and X509_V_ERR_IP_ADDRESS_MISMATCH.
_OTHER_NAME = frozenset({62, 64})


async def resolve(host: str, port: int) -> list[str]:
    """The distinct IP addresses of ``host`` in the system's order. Raises ConnectError if it has none."""
    if _is_address(host):
        return [host]  # without a thread
    try:
        found = await asyncio.get_running_loop().getaddrinfo(host, port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        said = os.strerror(error.errno) if isinstance(error, TimeoutError) and error.errno else str(error)
        if isinstance(error, socket.gaierror) and error.strerror:
            said = error.strerror
        raise ConnectError(f"{host}:{port}: the host's name can't be resolved ({said})") from error
    return list(dict.fromkeys(_address(place[4]) for place in found))


def _is_address(host: str) -> bool:
    for family in (socket.AF_INET, socket.AF_INET6):
        try:
            socket.inet_pton(family, host)
        except (OSError, UnicodeError, ValueError):
            continue
        return True
    return False


def _address(sockaddr: tuple[object, ...]) -> str:
    """An address as text; a link-local one (IPv6) with its scope id."""
    text = str(sockaddr[0])
    if len(sockaddr) == 4 and sockaddr[3] and "%" not in text:
        return f"{text}%{sockaddr[3]}"
    return text


async def connect(
    protocol: P, address: str, host: str, port: int, ssl_context: ssl.SSLContext | None
) -> asyncio.Transport:
    """Connect ``protocol`` to an address of ``host``, over TLS if there is a context for it. Raises ConnectError."""
    try:
        if ssl_context is None:
            transport, _ = await asyncio.get_running_loop().create_connection(lambda: protocol, address, port)
        else:
            transport, _ = await asyncio.get_running_loop().create_connection(
                lambda: protocol,
                address,
                port,
                ssl=ssl_context,
                server_hostname=host,
                ssl_shutdown_timeout=TLS_SHUTDOWN,
            )
    except ssl.SSLCertVerificationError as error:
        if error.verify_code in _OTHER_NAME:
            raise final(
                f"the certificate of {host}:{port} is for other names: {error.verify_message}; connect by a name or"
                " address in the certificate, or turn this check off (ssl_check_hostname)"
            ) from error
        raise final(
            f"the certificate of {host}:{port} is not trusted: {error.verify_message}; name its authority"
            " by ssl_cafile"
        ) from error
    except ssl.SSLError as error:
        if "ALERT" in (error.reason or ""):
            raise refused(host, port, error) from error
        raise final(
            f"{host}:{port} does not speak TLS as asked ({error.reason or error}); for a plaintext listener set"
            ' security_protocol="PLAINTEXT"'
        ) from error
    except OSError as error:
        tls = "" if ssl_context is None else "; is its listener PLAINTEXT?" if _hung_up(error) else ""
        raise ConnectError(f"{host}:{port}: {_what(error)}{_at(address, host)}{tls}") from error
    sock = transport.get_extra_info("socket")
    if sock is not None:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    return transport


def refused(host: str, port: int, error: ssl.SSLError) -> ConnectError:
    """The error for a TLS alert: the broker rejects this client's certificate."""
    return final(
        f"{host}:{port} refused the TLS connection ({error.reason or error}); if it asks for client"
        " certificates, give one that an authority trusted by the broker has signed (ssl_certfile, or load_cert_chain"
        " of ssl_context)"
    )


def final(message: str) -> ConnectError:
    """A ConnectError that isn't worth a retry, because the configuration has to change."""
    error = ConnectError(message)
    error.retriable = False
    return error


def _hung_up(error: OSError) -> bool:
    return isinstance(error, ConnectionResetError | ConnectionAbortedError | BrokenPipeError)


def _what(error: OSError) -> str:
    if error.errno:
        return os.strerror(error.errno).lower()
    return str(error) or ("the broker closed the connection" if _hung_up(error) else type(error).__name__)


def _at(address: str, host: str) -> str:
    return "" if address == host else f" at {address}"
