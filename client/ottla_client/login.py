"""Logins by SASL, as the settings describe them; those of OAUTHBEARER get their tokens here."""

from __future__ import annotations

import asyncio
import inspect
import ssl
import time
from collections.abc import Mapping
from functools import partial
from secrets import token_hex
from typing import TYPE_CHECKING, Any

from ottla_protocol.aio.http_client import exchange, read_file
from ottla_protocol.http_client import HttpError, parse_url, provider_tls
from ottla_protocol.sasl.login import Login, OAuthLogin, SaslLogin
from ottla_protocol.sasl.mechanism import OAUTHBEARER, SaslError
from ottla_protocol.sasl.oauthbearer import check_extensions
from ottla_protocol.sasl.token_endpoint import Credentials, read_token, token_request

if TYPE_CHECKING:
    from .settings import ConnectionSettings


def login_of(settings: ConnectionSettings) -> Login | None:
    """How a client logs in, None if there is no login."""
    mechanism = settings.sasl_mechanism
    if mechanism is None:
        return None
    if mechanism != OAUTHBEARER:
        user, password = settings.sasl_plain_username or "", settings.sasl_plain_password or ""
        return SaslLogin(mechanism, user, password, partial(token_hex, 16), tokenauth=settings.sasl_tokenauth)
    tokens = _Tokens(settings)
    return OAuthLogin(tokens.get, tokens.extensions, asyncio.Lock(), time.monotonic)


class _Tokens:
    """The tokens of a provider of the program's own, of a file, or of a token endpoint."""

    def __init__(self, settings: ConnectionSettings) -> None:
        self._settings = settings
        self._tls: ssl.SSLContext | None = None

    def extensions(self) -> Mapping[str, str]:
        """Raises SaslError."""
        found = self._settings.oauth_extensions()
        of_provider = getattr(self._settings.sasl_oauth_token_provider, "extensions", None)
        if callable(of_provider):
            found = {**found, **(of_provider() or {})}
        try:
            check_extensions(found)
        except ValueError as error:
            raise SaslError(str(error)) from error
        return found

    async def get(self) -> tuple[str, float]:
        """A token, and for how many seconds to keep it. Raises SaslError."""
        settings = self._settings
        if settings.sasl_oauth_token_provider is not None:
            return await _provided(settings.sasl_oauth_token_provider), 0.0
        url = settings.sasl_oauthbearer_token_endpoint_url or ""
        try:
            if url.startswith("file:"):
                return (await read_file(url)).decode("ascii", "replace"), 0.0
            return await self._ask(url)
        except HttpError as error:
            raise SaslError(f"no token: {error}") from error

    async def _ask(self, url: str) -> tuple[str, float]:
        settings, address = self._settings, parse_url(url)
        if address.tls and self._tls is None:
            self._tls = await asyncio.to_thread(provider_tls, settings.https_ca_location)
        credentials = Credentials(
            settings.sasl_oauthbearer_client_id or "",
            settings.sasl_oauthbearer_client_secret or "",
            settings.sasl_oauthbearer_scope or "",
        )
        found, seconds = token_request(address, credentials), settings.request_timeout
        await exchange(found, tls=self._tls, connect_timeout=seconds, read_timeout=seconds)
        return read_token(found)


async def _provided(provider: Any) -> str:
    """A token of the program's own: an object with ``token()``, as aiokafka's, or a function. Raises SaslError."""
    function = getattr(provider, "token", provider)
    try:
        if inspect.iscoroutinefunction(function):
            found = await function()
        else:
            # It may wait for the network.
            found = await asyncio.to_thread(function)
            if inspect.isawaitable(found):
                found = await found
    except Exception as error:
        raise SaslError(
            f"no token: sasl_oauth_token_provider raises {type(error).__name__}: {error}"
        ) from error
    # Functions for confluent-kafka return also when the token expires.
    token = found[0] if isinstance(found, tuple) and found else found
    if not isinstance(token, str):
        raise SaslError(f"no token: sasl_oauth_token_provider returns {type(token).__name__}, not a text")
    return token
