"""This broker's logins to the others of its cluster."""

from __future__ import annotations

import asyncio
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker.config.oauth_keys import OAuthKeys
from ottla_broker.config.sasl import broker_login as configured_login
from ottla_broker.config.sasl import extensions_of
from ottla_protocol.sasl.login import Login, OAuthLogin, SaslLogin
from ottla_protocol.sasl.mechanism import OAUTHBEARER, SaslClient, SaslError

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.clock import Clock
    from ottla_broker.config import BrokerConfig
    from ottla_broker.config.sasl import BrokerLogin


def broker_login(config: BrokerConfig, clock: Clock, random: Random) -> Login | None:
    """Return this broker's login to the others; None if their listener has no SASL."""
    found = configured_login(config)
    if found is None:
        return None
    if found.mechanism == OAUTHBEARER:
        return _by_tokens(config, clock, found)
    return _PasswordLogin(config, found.mechanism, random)


class _PasswordLogin:
    """By the user and password in the settings in force, which can change at runtime. See :class:`Login`."""

    def __init__(self, config: BrokerConfig, mechanism: str, random: Random) -> None:
        self.mechanism = mechanism
        self._config = config
        self._random = random
        self._settings: object = None
        self._made: SaslLogin

    @property
    def user(self) -> str:
        return self._current().user

    async def client(self) -> SaslClient:
        return await self._current().client()

    def _current(self) -> SaslLogin:
        """Raises SaslError."""
        if self._settings is not self._config.dynamic_broker:
            found = configured_login(self._config)
            options = {} if found is None else found.options
            if "username" not in options or "password" not in options:
                raise SaslError("the broker's login has no username and password")
            self._made = SaslLogin(
                self.mechanism,
                options["username"],
                options["password"],
                lambda: f"{self._random.getrandbits(128):032x}",
                tokenauth=options.get("tokenauth", "").lower() == "true",
            )
            self._settings = self._config.dynamic_broker
        return self._made


def _by_tokens(config: BrokerConfig, clock: Clock, found: BrokerLogin) -> Login:
    # Imported here because few clusters need it.
    from ottla_broker.network.peer_tokens import PeerTokens, TokenSettings
    from ottla_protocol.http_client import provider_tls
    from ottla_protocol.sasl.token_endpoint import Credentials

    value = partial(config.of_listener, found.listener, mechanism=OAUTHBEARER)
    options = found.options
    url = value(OAuthKeys.sasl_oauthbearer_token_endpoint_url)
    assert url is not None
    settings = TokenSettings(
        url,
        Credentials(options.get("clientId", ""), options.get("clientSecret", ""), options.get("scope", "")),
        value(OAuthKeys.sasl_login_retry_backoff_ms) / 1000,
        value(OAuthKeys.sasl_login_retry_backoff_max_ms) / 1000,
        (value(OAuthKeys.sasl_login_connect_timeout_ms) or 10_000) / 1000,
        (value(OAuthKeys.sasl_login_read_timeout_ms) or 10_000) / 1000,
    )
    tokens = PeerTokens(settings, partial(provider_tls, options.get("ssl.truststore.location")), clock)
    extensions = extensions_of(options)
    return OAuthLogin(tokens.get, lambda: extensions, asyncio.Lock(), clock.monotonic)
