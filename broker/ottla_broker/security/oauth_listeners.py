"""The validators of listeners with OAUTHBEARER, and the reading of their keys."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection
from functools import partial

from ottla_broker.clock import Clock, let_others_run
from ottla_broker.config import BrokerConfig
from ottla_broker.config.oauth_keys import SIGNED_TOKENS, VALIDATORS, OAuthKeys
from ottla_broker.config.sasl import login_of
from ottla_broker.network.jwks import Jwks, JwksSettings
from ottla_protocol.http_client import HttpError, provider_tls
from ottla_protocol.sasl.mechanism import OAUTHBEARER, Deferred
from ottla_protocol.sasl.oauthbearer import Token, TokenError

Validate = Callable[[str], Token]


class OAuthError(Exception):
    """A listener can't check tokens. The message names the listener."""


class OAuthListeners:
    """Owned by the loop thread.

    Attributes:
        validators: by listener, what checks its tokens.
    """

    def __init__(self, config: BrokerConfig, clock: Clock) -> None:
        self._config = config
        self._clock = clock
        self._sources: list[Jwks] = []
        self.validators: dict[str, Validate] = {}

    async def open(self, listener: str) -> None:
        """Make a listener's validator, and read its keys. Raises OAuthError."""
        try:
            # Imported here because most brokers don't have the package.
            from ottla_broker.security.token_validation import SignedTokens, UnsecuredTokens
        except ModuleNotFoundError as error:
            raise OAuthError(
                f"the listener {listener} has OAUTHBEARER, which needs the package {error.name}:"
                " pip install 'ottla[security]'"
            ) from None
        value = partial(self._config.of_listener, listener, mechanism=OAUTHBEARER)
        given = value(OAuthKeys.sasl_server_callback_handler_class)
        login = login_of(self._config, listener, OAUTHBEARER)
        options = {} if login is None else login.options
        if given is not None and VALIDATORS[given] != SIGNED_TOKENS:
            try:
                self.validators[listener] = UnsecuredTokens(options, self._clock.now_ms).validate
            except ValueError as error:
                raise OAuthError(f"the login of the listener {listener}: {error}") from error
            return
        audience: Collection[str] | None = value(OAuthKeys.sasl_oauthbearer_expected_audience)
        tokens = SignedTokens(
            audience=audience or (),
            issuer=value(OAuthKeys.sasl_oauthbearer_expected_issuer),
            skew_seconds=value(OAuthKeys.sasl_oauthbearer_clock_skew_seconds),
            scope_claim=value(OAuthKeys.sasl_oauthbearer_scope_claim_name),
            sub_claim=value(OAuthKeys.sasl_oauthbearer_sub_claim_name),
            now_ms=self._clock.now_ms,
        )
        url = value(OAuthKeys.sasl_oauthbearer_jwks_endpoint_url)
        assert url is not None
        settings = JwksSettings(
            url,
            value(OAuthKeys.sasl_oauthbearer_jwks_endpoint_refresh_ms) / 1000,
            value(OAuthKeys.sasl_oauthbearer_jwks_endpoint_retry_backoff_ms) / 1000,
            value(OAuthKeys.sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms) / 1000,
            (value(OAuthKeys.sasl_login_connect_timeout_ms) or 10_000) / 1000,
            (value(OAuthKeys.sasl_login_read_timeout_ms) or 10_000) / 1000,
        )
        tls = partial(provider_tls, options.get("ssl.truststore.location"))
        source = Jwks(settings, tokens.use, tls, self._clock)
        loop = asyncio.get_running_loop()

        def expedite() -> None:
            loop.call_soon_threadsafe(source.expedite)

        tokens.on_unknown_key = expedite
        tokens.between_keys = let_others_run
        try:
            await source.start()
        except HttpError as error:
            raise OAuthError(f"the keys for tokens of the listener {listener}: {error}") from error
        self._sources.append(source)
        self.validators[listener] = partial(_on_a_thread, tokens.validate)

    async def close(self) -> None:
        for source in self._sources:
            await source.close()


def _on_a_thread(validate: Validate, token: str) -> Token:
    """Check a signature, which takes milliseconds, on another thread: always raises Deferred."""
    raise Deferred(partial(_outcome, validate, token), _token)


def _outcome(validate: Validate, token: str) -> Token | TokenError:
    try:
        return validate(token)
    except TokenError as error:
        return error


def _token(outcome: Token | TokenError) -> Token:
    if isinstance(outcome, TokenError):
        raise outcome
    return outcome
