"""Requests over HTTP: one connection each, with deadlines, and a bound on the response; and ``file:`` URLs."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager, suppress
from typing import Any, Final
from urllib.parse import unquote, urlsplit

from ..http_client import MAX_BODY, HttpError, HttpExchange

_READ: Final = 8 * 1024
"""Bytes that are parsed in a turn of the event loop: 5 ms, should each chunk have one byte."""


async def exchange(
    http: HttpExchange,
    *,
    tls: ssl.SSLContext | None,
    connect_timeout: float,
    read_timeout: float,
    timeout: Callable[[float], AbstractAsyncContextManager[Any]] = asyncio.timeout,
) -> None:
    """Send a request and read its response. Timeouts are in seconds, on the clock of ``timeout``. Raises HttpError."""
    address = http.address
    writer: asyncio.StreamWriter | None = None
    stage, limit = "connect", connect_timeout
    try:
        async with timeout(connect_timeout):
            reader, writer = await asyncio.open_connection(
                address.host, address.port, ssl=tls, server_hostname=address.host if tls is not None else None
            )
        stage, limit = "answer", read_timeout
        async with timeout(read_timeout):
            writer.write(http.request)
            while not http.complete:
                http.feed(await reader.read(_READ))
                # What has arrived already is read without a pause.
                await asyncio.sleep(0)
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
    path = unquote(urlsplit(url).path)

    def read() -> bytes:
        with open(path, "rb") as file:
            return file.read(MAX_BODY + 1)

    try:
        data = await asyncio.to_thread(read)
    except OSError as error:
        raise HttpError(f"{path}: {error.strerror}") from error
    if len(data) > MAX_BODY:
        raise HttpError(f"{path}: is larger than {MAX_BODY} bytes")
    return data
