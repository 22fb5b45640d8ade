"""Checks the settings of listeners with SASL, and reads their logins."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar

from ottla_broker.config.listener_settings import full_name, listener_setting
from ottla_broker.config.model import HIDDEN, InvalidValue
from ottla_broker.config.oauth_keys import SIGNED_TOKENS, VALIDATORS, OAuthKeys
from ottla_broker.config.security_keys import SaslKeys
from ottla_protocol.sasl.jaas import MODULES, Login, parse_login, plain_users
from ottla_protocol.sasl.mechanism import MECHANISMS, OAUTHBEARER, PLAIN

if TYPE_CHECKING:
    from ottla_broker.config.listeners import Endpoint
    from ottla_broker.config.model import ConfigError, Key

T = TypeVar("T")


class Config(Protocol):
    """The part of ``BrokerConfig`` that is needed here."""

    static: dict[str, str]
    endpoints: tuple[Endpoint, ...]
    dynamic_broker: dict[str, str]

    @property
    def inter_broker_endpoint(self) -> Endpoint: ...

    def settings_with(self, broker: Mapping[str, str]) -> dict[str, str]: ...

    def of_listener(
        self, listener: str, key: Key[T], settings: Mapping[str, str] | None = None, mechanism: str = ""
    ) -> T: ...


class BrokerLogin(NamedTuple):
    """This broker's login to others: by name and password, or with tokens that the options get."""

    listener: str
    mechanism: str
    options: Mapping[str, str]


def login_of(
    config: Config, listener: str, mechanism: str, settings: Mapping[str, str] | None = None
) -> Login | None:
    """A mechanism's login on a listener, if there is one. Raises ValueError for one of another form.

    ``settings`` are used instead of those in force.
    """
    given = config.settings_with(config.dynamic_broker) if settings is None else settings
    text = given.get(full_name(listener, SaslKeys.sasl_jaas_config, mechanism))
    return None if text is None else parse_login(text)


def users_of(config: Config, listener: str, settings: Mapping[str, str] | None = None) -> dict[str, str]:
    """The passwords of a listener's users with PLAIN. ``settings`` are used instead of those in force."""
    login = login_of(config, listener, PLAIN, settings)
    return {} if login is None else plain_users(login)


def broker_login(config: Config) -> BrokerLogin | None:
    """Return this broker's login to the others; None if their listener has no SASL."""
    endpoint = config.inter_broker_endpoint
    if not endpoint.uses_sasl:
        return None
    mechanism = config.of_listener(endpoint.name, SaslKeys.sasl_mechanism_inter_broker_protocol)
    login = login_of(config, endpoint.name, mechanism)
    options = {} if login is None else login.options
    return BrokerLogin(endpoint.name, mechanism, options)


def check_sasl(config: Config, in_cluster: bool, error: Callable[[str, str], ConfigError]) -> None:
    """Check the listeners with SASL. Raises ConfigError, made by ``error`` of a key and a reason."""
    if SaslKeys.sasl_jaas_config.name in config.static:
        raise error(
            SaslKeys.sasl_jaas_config.name,
            "is for one listener and one mechanism: write"
            " listener.name.<listener>.<mechanism>.sasl.jaas.config, both in lower case",
        )
    for endpoint in config.endpoints:
        if endpoint.uses_sasl:
            _check_listener(config, endpoint.name, error)
    if in_cluster and config.inter_broker_endpoint.uses_sasl:
        _check_between_brokers(config, error)


def check_logins(config: Config, in_cluster: bool, settings: Mapping[str, str]) -> None:
    """Check the logins that ``settings``, all as they would be, change at runtime. Raises InvalidValue."""
    offered = {
        (endpoint.name.lower(), mechanism.lower()): (endpoint.name, mechanism)
        for endpoint in config.endpoints
        if endpoint.uses_sasl
        for mechanism in config.of_listener(endpoint.name, SaslKeys.sasl_enabled_mechanisms)
    }
    before = config.settings_with(config.dynamic_broker)

    def error(name: str, reason: str) -> InvalidValue:
        return InvalidValue(name, HIDDEN, reason)

    for name, text in settings.items():
        setting = listener_setting(name)
        if setting is None or setting.key is not SaslKeys.sasl_jaas_config or before.get(name) == text:
            continue
        found = offered.get((setting.listener, setting.mechanism))
        if found is None:
            raise error(name, "no listener of this broker offers this mechanism")
        listener, mechanism = found
        if mechanism == OAUTHBEARER:
            raise error(name, "can't change at runtime; set it in the broker's configuration and restart it")
        _check_login(config, listener, mechanism, error, settings)
        if in_cluster and listener == config.inter_broker_endpoint.name:
            between = config.of_listener(listener, SaslKeys.sasl_mechanism_inter_broker_protocol)
            if mechanism == between:
                _check_own_password(name, parse_login(text), error)


def _check_listener(config: Config, name: str, error: Callable[[str, str], ConfigError]) -> None:
    mechanisms = config.of_listener(name, SaslKeys.sasl_enabled_mechanisms)
    wrong = [mechanism for mechanism in mechanisms if mechanism not in MECHANISMS]
    if wrong or not mechanisms:
        what = _not_built(config, name, SaslKeys.sasl_enabled_mechanisms, wrong) if wrong else "is empty"
        raise error(
            SaslKeys.sasl_enabled_mechanisms.name,
            f"{what}; set it to what the listener {name} offers: {', '.join(MECHANISMS)}",
        )
    for mechanism in mechanisms:
        _check_login(config, name, mechanism, error)
        if mechanism == OAUTHBEARER:
            _check_validator(config, name, error)


def _not_built(config: Config, listener: str, key: Key[T], mechanisms: Sequence[str]) -> str:
    # A key that isn't set has GSSAPI, which the user may never have heard of.
    is_set = key.name in config.static or full_name(listener, key) in config.static
    names = ", ".join(
        f"{each}, the default," if each == "GSSAPI" and not is_set else each for each in mechanisms
    )
    return f"{names} is not built"


def _check_login(
    config: Config,
    name: str,
    mechanism: str,
    error: Callable[[str, str], Exception],
    settings: Mapping[str, str] | None = None,
) -> None:
    key = full_name(name, SaslKeys.sasl_jaas_config, mechanism)
    login = login_of(config, name, mechanism, settings)
    if login is not None and login.module != MODULES[mechanism]:
        raise error(key, f"the login's class must be {MODULES[mechanism]}")
    if mechanism == PLAIN and not users_of(config, name, settings):
        raise error(
            key,
            f'has no users; write {MODULES[mechanism]} required user_alice="her password";'
            " with one option per user",
        )


def _check_validator(config: Config, name: str, error: Callable[[str, str], ConfigError]) -> None:
    given = config.of_listener(name, OAuthKeys.sasl_server_callback_handler_class, mechanism=OAUTHBEARER)
    if VALIDATORS.get(given or SIGNED_TOKENS) != SIGNED_TOKENS:
        return
    url = OAuthKeys.sasl_oauthbearer_jwks_endpoint_url
    if not config.of_listener(name, url, mechanism=OAUTHBEARER):
        raise error(
            url.name,
            f"is missing, and the listener {name} has OAUTHBEARER; set it to where your OAuth provider publishes"
            " its keys",
        )


def extensions_of(options: Mapping[str, str]) -> dict[str, str]:
    """The SASL extensions among a login's options, such as ``extension_name``."""
    return {name[10:]: value for name, value in options.items() if name.startswith("extension_")}


def _check_between_brokers(config: Config, error: Callable[[str, str], ConfigError]) -> None:
    name = config.inter_broker_endpoint.name
    mechanism = config.of_listener(name, SaslKeys.sasl_mechanism_inter_broker_protocol)
    key = SaslKeys.sasl_mechanism_inter_broker_protocol.name
    if mechanism not in MECHANISMS:
        why = _not_built(config, name, SaslKeys.sasl_mechanism_inter_broker_protocol, [mechanism])
        raise error(key, f"{why}; set it to one of {', '.join(MECHANISMS)}")
    if mechanism not in config.of_listener(name, SaslKeys.sasl_enabled_mechanisms):
        raise error(key, f"{mechanism} is not among the listener's sasl.enabled.mechanisms")
    login = login_of(config, name, mechanism)
    if mechanism == OAUTHBEARER:
        _check_own_tokens(config, name, {} if login is None else login.options, error)
        return
    callbacks = OAuthKeys.sasl_login_callback_handler_class
    if config.of_listener(name, callbacks, mechanism=mechanism):
        raise error(callbacks.name, f"is for OAUTHBEARER, and brokers log in by {mechanism}; remove the key")
    _check_own_password(full_name(name, SaslKeys.sasl_jaas_config, mechanism), login, error)


def _check_own_password(key: str, login: Login | None, error: Callable[[str, str], Exception]) -> None:
    if login is None or "username" not in login.options or "password" not in login.options:
        raise error(
            key,
            "needs the options username and password, by which this broker authenticates to others",
        )


def _check_own_tokens(
    config: Config, name: str, options: Mapping[str, str], error: Callable[[str, str], ConfigError]
) -> None:
    key = OAuthKeys.sasl_oauthbearer_token_endpoint_url
    url = config.of_listener(name, key, mechanism=OAUTHBEARER)
    login = full_name(name, SaslKeys.sasl_jaas_config, OAUTHBEARER)
    if not url:
        raise error(key.name, f"is missing, and brokers log in to the listener {name} by OAUTHBEARER")
    if not url.startswith("file:") and not (options.get("clientId") and options.get("clientSecret")):
        raise error(
            login, "needs the options clientId and clientSecret, for which the OAuth provider gives a token"
        )
    # Imported here because few brokers log in with tokens.
    from ottla_protocol.sasl.oauthbearer import check_extensions

    try:
        check_extensions(extensions_of(options))
    except ValueError as wrong:
        raise error(login, str(wrong)) from wrong
