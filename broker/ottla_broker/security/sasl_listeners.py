"""The SASL of listeners: which mechanisms each offers, and against what they check."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import TYPE_CHECKING

from ottla_broker.config.sasl import users_of
from ottla_broker.config.security_keys import SaslKeys
from ottla_broker.security.authentication import AuthenticatingService, Mechanism
from ottla_protocol.sasl.mechanism import OAUTHBEARER, PLAIN, SaslServer
from ottla_protocol.sasl.oauthbearer import OAuthServer, Token
from ottla_protocol.sasl.plain import PlainServer
from ottla_protocol.sasl.scram import ScramServer

if TYPE_CHECKING:
    from random import Random

    from ottla_broker.client_threads import ClientThreads
    from ottla_broker.clock import Clock
    from ottla_broker.config import BrokerConfig
    from ottla_broker.controller.delegation_tokens import DelegationTokens
    from ottla_broker.metadata.scram_credentials import ScramCredentials
    from ottla_broker.network.service import Service


class PlainUsers:
    """A listener's users with PLAIN, as the settings in force have them; they can change at runtime."""

    def __init__(self, config: BrokerConfig, listener: str) -> None:
        self._config = config
        self._listener = listener
        self._settings = config.dynamic_broker
        self._passwords = users_of(config, listener)

    def passwords(self) -> Mapping[str, str]:
        settings = self._config.dynamic_broker
        if settings is not self._settings:
            self._settings, self._passwords = settings, users_of(self._config, self._listener)
        return self._passwords


def authenticating(
    inner: Service,
    config: BrokerConfig,
    listener: str,
    credentials: ScramCredentials,
    clock: Clock,
    random: Random,
    secret: bytes,
    threads: ClientThreads,
    validate: Callable[[str], Token] | None = None,
    tokens: DelegationTokens | None = None,
) -> AuthenticatingService:
    """The service of a listener with SASL; ``inner`` serves clients that have authenticated.

    ``threads`` check what takes milliseconds. ``secret`` makes the salts that unknown users get. ``validate`` checks
    the tokens of OAUTHBEARER; ``tokens`` are delegation tokens, which log in by SCRAM.
    """
    users = PlainUsers(config, listener)

    def scram(mechanism: str) -> SaslServer:
        nonce = f"{random.getrandbits(128):032x}"
        find, forms = partial(credentials.find, mechanism), credentials.forms[mechanism]
        if tokens is None:
            return ScramServer(mechanism, find, nonce, secret, forms=forms)
        return ScramServer(mechanism, find, nonce, secret, partial(tokens.find, mechanism), forms)

    def maker(mechanism: str) -> Callable[[], SaslServer]:
        if mechanism == PLAIN:
            return lambda: PlainServer(users.passwords())
        if mechanism == OAUTHBEARER:
            assert validate is not None
            return partial(OAuthServer, validate)
        return partial(scram, mechanism)

    offered = {
        name: Mechanism(
            maker(name),
            max(0, config.of_listener(listener, SaslKeys.connections_max_reauth_ms, mechanism=name)) / 1000,
        )
        for name in config.of_listener(listener, SaslKeys.sasl_enabled_mechanisms)
    }
    delay = config.connection_failed_authentication_delay_ms / 1000
    return AuthenticatingService(inner, offered, clock, lambda: delay, threads)
