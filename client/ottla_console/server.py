"""Serving the console until it is cancelled."""

from __future__ import annotations

import asyncio
import logging
import os
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from importlib import import_module
from typing import Final

from aiohttp import web
from aiohttp.http_exceptions import HttpProcessingError
from aiohttp.web_protocol import RequestPayloadError

from ottla_client.errors import ConfigurationError

from .app import build
from .connections import LimitedSite
from .settings import WebSettings

_CLOSE_SECONDS = 2.0
_IDLE_SECONDS = 30.0
"""The longest wait of a connection for the whole head of its first or next request."""


_LONGEST: Final = 200


def _line(text: str) -> str:
    return " ".join(text.split())[:_LONGEST]


class _OneLine(logging.Filter):
    """One line for a request that isn't HTTP: aiohttp logs a stranger's bad request like a defect of the server."""

    def filter(self, record: logging.LogRecord) -> bool:
        error = record.exc_info[1] if record.exc_info else None
        if isinstance(error, RequestPayloadError):
            # A body that isn't compressed as its header says, or ends too early.
            record.msg, record.args = f"a request's body can't be read: {_line(str(error))}", ()
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        elif isinstance(error, HttpProcessingError):
            remote = record.args[0] if isinstance(record.args, tuple) and record.args else "a client"
            what = _line(error.message)
            record.msg = f"a request from {remote} can't be read: {what.rstrip(':') or 'it is not HTTP'}"
            record.args = ()
            record.exc_info = record.exc_text = None
            record.levelno, record.levelname = logging.WARNING, "WARNING"
        return True


_LOGGER: Final = logging.getLogger("ottla.console")
_LOGGER.addFilter(_OneLine())


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
        logger=_LOGGER,
        shutdown_timeout=_CLOSE_SECONDS,
        keepalive_timeout=_IDLE_SECONDS,
    )
    await runner.setup()
    listener: LimitedSite | None = None
    try:
        listener = LimitedSite(runner, settings.host, settings.port, _context(settings))
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
        if listener is not None:
            listener.connections.close()


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
