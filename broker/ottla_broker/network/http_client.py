"""Requests to OAuth providers: one connection each, with a deadline and a bound on the response."""

from __future__ import annotations

import asyncio
import ssl
from contextlib import suppress
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from ottla_broker.clock import Clock
from ottla_protocol.http_client import MAX_BODY, Address, HttpError, ResponseReader

_READ: Final = 64 * 1024


async def exchange(
    address: Address,
    request: bytes,
    *,
    tls: ssl.SSLContext | None,
    connect_timeout: float,
    read_timeout: float,
    clock: Clock,
) -> ResponseReader:
    """Send a request and return its response. Timeouts are in seconds. Raises HttpError."""
    writer: asyncio.StreamWriter | None = None
    stage, limit = "connect", connect_timeout
    try:
        async with clock.timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=tls, server_hostname=address.host if tls is not None else None
            )
        stage, limit = "answer", read_timeout
        found = ResponseReader(address)
        async with clock.timeout(read_timeout):
            writer.write(request)
            while not found.complete:
                data = await reader.read(_READ)
                if data:
                    found.feed(data)
                else:
                    found.end()
        return found
    except TimeoutError:
        raise HttpError(f"{address.where} did not {stage} within {limit:.3g} s") from None
    except OSError as error:
        raise HttpError(
            f"{address.where}: {getattr(error, 'verify_message', None) or error.strerror or error}"
        ) from error
    finally:
        if writer is not None:
            writer.transport.abort()
            # Aborted, and its outcome is known already.
            with suppress(OSError):
                await writer.wait_closed()


async def read_file(url: str) -> bytes:
    """A file named by a ``file:`` URL, on a thread. Raises HttpError."""
    path = Path(unquote(urlsplit(url).path))

    def read() -> bytes:
        with path.open("rb") as file:
            return file.read(MAX_BODY + 1)

    try:
        data = await asyncio.to_thread(read)
    except OSError as error:
        raise HttpError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_BODY:
        raise HttpError(f"{path}: is larger than {MAX_BODY} bytes")
    return data
