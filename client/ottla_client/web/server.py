"""Serving the console until it is cancelled."""

from __future__ import annotations

import asyncio
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module

from aiohttp import web

from ..errors import ConfigurationError
from .app import build
from .malformed import LOGGER
from .settings import WebSettings

_CLOSE_SECONDS = 2.0
_IDLE_SECONDS = 30.0
"""How long a connection may wait for the whole head of its first or next request."""


@asynccontextmanager
async def serving(settings: WebSettings) -> AsyncIterator[str]:
    """Serve the console; gives its address. Raises ConfigurationError, ClientError, OSError."""
    # Searches need Arrow, which takes a second to import: the first one shouldn't wait for it.
    await asyncio.to_thread(import_module, "ottla_client.arrow")
    # A browser that goes away ends what was computed for it.
    runner = web.AppRunner(
        build(settings),
        handler_cancellation=True,
        access_log=None,
        logger=LOGGER,
        shutdown_timeout=_CLOSE_SECONDS,
        keepalive_timeout=_IDLE_SECONDS,
    )
    await runner.setup()
    try:
        listener = web.TCPSite(runner, settings.host, settings.port, ssl_context=_context(settings))
        try:
            await listener.start()
        except OSError as error:
            where = f"{settings.host}:{settings.port}"
            reason = os.strerror(error.errno) if error.errno and error.errno > 0 else error.strerror or error
            raise ConfigurationError(
                f"--listen {where}: can't listen there ({reason}); stop what holds the port, or choose another address"
            ) from None
        port = runner.addresses[0][1]
        host = f"[{settings.host}]" if ":" in settings.host else settings.host
        yield f"{'https' if settings.is_tls else 'http'}://{host}:{port}/"
    finally:
        await runner.cleanup()


def _context(settings: WebSettings) -> ssl.SSLContext | None:
    if settings.tls_cert is None:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        context.load_cert_chain(settings.tls_cert, settings.tls_key)
    except (OSError, ssl.SSLError) as error:
        reason = getattr(error, "reason", None) or error.strerror or error
        raise ConfigurationError(f"--tls-cert {settings.tls_cert}: {reason}; PEM files are needed") from None
    return context


async def serve_forever() -> None:
    """Wait until the command is cancelled."""
    await asyncio.get_running_loop().create_future()
