"""Tokens by which this broker logs in to others with OAUTHBEARER: from an OAuth provider, or from a file."""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import NamedTuple

from ottla_broker.clock import Clock
from ottla_protocol.aio.http_client import exchange, read_file
from ottla_protocol.http_client import HttpError, parse_url
from ottla_protocol.sasl.mechanism import SaslError
from ottla_protocol.sasl.token_endpoint import Credentials, RetriableError, read_token, token_request


class TokenSettings(NamedTuple):
    """The source of tokens. Times are in seconds."""

    url: str
    credentials: Credentials
    backoff: float
    backoff_max: float
    connect_timeout: float
    read_timeout: float


class PeerTokens:
    """See :data:`ottla_protocol.sasl.login.GetToken`. Owned by the loop thread."""

    def __init__(self, settings: TokenSettings, tls: Callable[[], ssl.SSLContext], clock: Clock) -> None:
        self._settings = settings
        self._tls = tls
        self._clock = clock

    async def get(self) -> tuple[str, float]:
        """A token, and for how many seconds to keep it. Raises SaslError."""
        settings = self._settings
        try:
            if settings.url.startswith("file:"):
                return (await read_file(settings.url)).decode("ascii", "replace"), 0.0
            pause = settings.backoff
            while True:
                try:
                    return await self._ask()
                except RetriableError:
                    # As Kafka: the pauses double until one would be longer than allowed.
                    if pause > settings.backoff_max:
                        raise
                    await self._clock.sleep(pause)
                    pause *= 2
        except HttpError as error:
            raise SaslError(f"no token: {error}") from error

    async def _ask(self) -> tuple[str, float]:
        settings = self._settings
        address = parse_url(settings.url)
        found = token_request(address, settings.credentials)
        await exchange(
            found,
            tls=self._tls() if address.tls else None,
            connect_timeout=settings.connect_timeout,
            read_timeout=settings.read_timeout,
            timeout=self._clock.timeout,
        )
        return read_token(found)
