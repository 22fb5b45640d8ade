"""Reads an OAuth provider's keys (a JWKS) at start, periodically, and when a token names an unknown key.

A read that fails leaves the keys in force and is tried again, each time after a longer pause. Kafka:
``RefreshingHttpsJwks``.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Final, NamedTuple

from ottla_broker.clock import Clock
from ottla_broker.events import get_logger
from ottla_protocol.aio.http_client import exchange, read_file
from ottla_protocol.http_client import HttpError, HttpExchange, parse_url

_log = get_logger()

_EXPEDITED_SECONDS: Final = 60.0
"""The least time between two reads for unknown key ids (Kafka: ``MISSING_KEY_ID_CACHE_IN_FLIGHT_MS``)."""


class JwksSettings(NamedTuple):
    """The source of the keys. Times are in seconds."""

    url: str
    refresh: float
    backoff: float
    backoff_max: float
    connect_timeout: float
    read_timeout: float


class Jwks:
    """Owned by the loop thread. ``use`` takes the text of the keys, and raises ValueError if it has none."""

    def __init__(
        self,
        settings: JwksSettings,
        use: Callable[[bytes], None],
        tls: Callable[[], ssl.SSLContext],
        clock: Clock,
    ) -> None:
        self._settings = settings
        self._use = use
        self._tls = tls
        self._clock = clock
        self._wake = asyncio.Event()
        self._last_expedited: float | None = None
        self._task: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Read the keys. Raises HttpError if they are in a file that can't be read; a URL is tried again later."""
        failed = 0
        try:
            await self._read()
        except HttpError as error:
            if self._settings.url.startswith("file:"):
                raise
            _log.warning("the keys for tokens can't be read, trying again", reason=str(error))
            failed = 1
        self._task = asyncio.get_running_loop().create_task(self._run(failed))

    async def close(self) -> None:
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.wait([task])

    def expedite(self) -> None:
        """A token names an unknown key: perhaps the provider has a new one."""
        now = self._clock.monotonic()
        if self._last_expedited is None or now - self._last_expedited >= _EXPEDITED_SECONDS:
            self._last_expedited = now
            self._wake.set()

    async def _run(self, failed: int) -> None:
        settings = self._settings
        while True:
            pause = settings.refresh
            if failed:
                pause = min(settings.backoff_max, settings.backoff * 2 ** min(failed - 1, 30))
            try:
                async with self._clock.timeout(pause):
                    await self._wake.wait()
            except TimeoutError:
                pass  # the time to read them again
            self._wake.clear()
            try:
                await self._read()
            except HttpError as error:
                if not failed:
                    _log.warning("the keys for tokens can't be read, trying again", reason=str(error))
                failed += 1
            else:
                if failed:
                    _log.info("the keys for tokens can be read again")
                failed = 0

    async def _read(self) -> None:
        """Raises HttpError."""
        settings = self._settings
        if settings.url.startswith("file:"):
            data = await read_file(settings.url)
        else:
            address = parse_url(settings.url)
            found = HttpExchange(address)
            await exchange(
                found,
                tls=self._tls() if address.tls else None,
                connect_timeout=settings.connect_timeout,
                read_timeout=settings.read_timeout,
                timeout=self._clock.timeout,
            )
            if found.status != 200:
                raise HttpError(f"{address.where} answers {found.status}")
            data = found.body
        try:
            self._use(data)
        except ValueError as error:
            raise HttpError(f"{settings.url.partition('?')[0]}: {error}") from error
