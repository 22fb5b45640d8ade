"""Options as text: in Python's spelling (``ssl_cafile``) or in Kafka's (``ssl.truststore.location``).

``-X`` of every command and the ``kafka.`` options of Spark are read here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import fields
from types import UnionType
from typing import Any, Final, Literal, Union, get_args, get_origin, get_type_hints

from ottla_protocol.sasl.jaas import MODULES, parse_login
from ottla_protocol.sasl.mechanism import OAUTHBEARER

from .errors import ConfigurationError
from .foreign_options import unknown_option
from .settings import ConnectionSettings

_HOSTNAME_CHECK: Final = "ssl.endpoint.identification.algorithm"
_LOGIN: Final = "sasl.jaas.config"
_CALLBACKS: Final = "sasl.login.callback.handler.class"
_STORE_TYPES: Final = ("ssl.truststore.type", "ssl.keystore.type")
# Names of Java's and librdkafka's options that aren't the Python name with dots.
_FROM_KAFKA: Final = {
    "ssl.truststore.location": "ssl_cafile",
    "ssl.ca.location": "ssl_cafile",
    "ssl.keystore.location": "ssl_certfile",
    "ssl.certificate.location": "ssl_certfile",
    "ssl.key.location": "ssl_keyfile",
    "ssl.key.password": "ssl_password",
    _HOSTNAME_CHECK: "ssl_check_hostname",
    "sasl.username": "sasl_plain_username",
    "sasl.password": "sasl_plain_password",
    "sasl.mechanism": "sasl_mechanism",
    "sasl.mechanisms": "sasl_mechanism",
    "sasl.oauthbearer.client.credentials.client.id": "sasl_oauthbearer_client_id",
    "sasl.oauthbearer.client.credentials.client.secret": "sasl_oauthbearer_client_secret",
}
_TO_KAFKA: Final = {option: kafka for kafka, option in reversed(_FROM_KAFKA.items())}
_OF_TOKENS: Final = {
    "clientId": "sasl_oauthbearer_client_id",
    "clientSecret": "sasl_oauthbearer_client_secret",
    "scope": "sasl_oauthbearer_scope",
}
"""The options of Java's login for OAUTHBEARER."""
_TEXTS: Final = frozenset((bool, int, float, str, list))
_TRIMMED: Final = "".join(map(chr, range(33)))
"""What Java's String.trim drops."""
_WORDS: Final = {"true": True, "yes": True, "on": True, "false": False, "no": False, "off": False}
# Kafka's values, and those of ssl_check_hostname, which `kafka_name` renames to the same option.
_HOSTNAME_VALUES: Final = {"https": True, "none": False, "": False, **_WORDS}


def kafka_name(name: str) -> str:
    """An option in Kafka's spelling: ``linger.ms`` for ``linger_ms``, ``linger-ms`` and itself."""
    dotted = _dotted(name)
    return _TO_KAFKA.get(dotted.replace(".", "_"), dotted)


def option_name(name: str) -> str:
    """An option in Python's spelling, that of the keyword argument."""
    dotted = _dotted(name)
    return _FROM_KAFKA.get(dotted, dotted.replace(".", "_"))


def in_kafka_names(text: str) -> str:
    """``text`` with the options of TLS and SASL in Kafka's spellings, as users of ``-X`` know them."""
    options = {name for name in _types(ConnectionSettings) if name.startswith(("sasl_", "ssl_", "security_"))}
    return re.sub(r"\w+", lambda word: kafka_name(word[0]) if word[0] in options else word[0], text)


def kafka_names(settings: type[ConnectionSettings]) -> list[str]:
    """All options of ``settings`` that text can express, in Kafka's spellings."""
    plain = [name.replace("_", ".") for name in _types(settings) if name not in _TO_KAFKA]
    return [*plain, *_FROM_KAFKA, *_STORE_TYPES, _LOGIN, _CALLBACKS]


def read_options(
    texts: Mapping[str, str],
    settings: type[ConnectionSettings],
    *,
    also: Iterable[type[ConnectionSettings]] = (),
    shown: Callable[[str], str] = str,
) -> dict[str, Any]:
    """Keyword arguments out of text, each of the type that its option has in ``settings``.

    Blanks around a text are dropped, also around a password, as Kafka's ConfigDef does; Java's Properties keeps those
    at the end of a line. Options that only the settings in ``also`` have are left out. ``shown`` turns a name into
    the one for errors.

    Raises ConfigurationError for an unknown name, with a suggestion, and for a value of another type.
    """
    every = [settings, *also]
    types = _types(settings)
    others = {name for each in every for name in _types(each)}
    read: dict[str, Any] = {}
    for given, untrimmed in texts.items():
        dotted, name, text = _dotted(given), option_name(given), untrimmed.strip(_TRIMMED)
        if dotted in _STORE_TYPES:
            if text.upper() != "PEM":
                raise ConfigurationError(
                    f"{shown(given)} is {text}; give certificates as PEM files, and PEM here"
                )
        elif dotted == _LOGIN:
            read |= _user_of(shown(given), text)
        elif dotted == _CALLBACKS:
            if not text.endswith(".OAuthBearerLoginCallbackHandler"):
                raise ConfigurationError(
                    f"{shown(given)} is {text}, a Java class; leave it out, and give sasl_oauth_token_provider in"
                    " Python for tokens of your own"
                )
        elif dotted == _HOSTNAME_CHECK:
            if text.lower() not in _HOSTNAME_VALUES:
                raise ConfigurationError(f'{shown(given)} is {text!r}; it can be "https", or "" for no check')
            read[name] = _HOSTNAME_VALUES[text.lower()]
        elif name in types:
            read[name] = _value(shown(given), text, types[name])
        elif name not in others:
            known = others if "." not in given else {name for each in every for name in kafka_names(each)}
            raise ConfigurationError(f"the client has no option {shown(given)}{unknown_option(given, known)}")
    return read


def _user_of(name: str, text: str) -> dict[str, Any]:
    """Read the options of a login in Java's form. Raises ConfigurationError, without the password."""
    try:
        module, options = parse_login(text)
    except ValueError as error:
        raise ConfigurationError(f"{name}: {error}") from None
    if module == MODULES[OAUTHBEARER]:
        extensions = [f"{key[10:]}={value}" for key, value in options.items() if key.startswith("extension_")]
        found = {option: options[key] for key, option in _OF_TOKENS.items() if options.get(key)}
        return {**found, **({"sasl_oauthbearer_extensions": ",".join(extensions)} if extensions else {})}
    missing = [each for each in ("username", "password") if not options.get(each)]
    if missing:
        raise ConfigurationError(f"{name} has no {' and no '.join(missing)}")
    user: dict[str, Any] = {
        "sasl_plain_username": options["username"],
        "sasl_plain_password": options["password"],
    }
    if options.get("tokenauth", "").lower() == "true":
        user["sasl_tokenauth"] = True
    return user


def _dotted(name: str) -> str:
    return re.sub("[-_]", ".", name.strip().lower())


def _types(settings: type[ConnectionSettings]) -> dict[str, frozenset[type]]:
    """The types of the options that text can express."""
    hints = get_type_hints(settings)
    found = {field.name: _kinds(hints[field.name]) for field in fields(settings)}
    return {name: kinds for name, kinds in found.items() if kinds}


def _kinds(hint: Any) -> frozenset[type]:
    origin = get_origin(hint)
    if origin in (Union, UnionType):
        return frozenset().union(*map(_kinds, get_args(hint)))
    if origin is Literal:
        return frozenset(map(type, get_args(hint)))
    if origin is Sequence:
        return frozenset((list,))
    return _TEXTS & {hint}


def _value(name: str, text: str, kinds: frozenset[type]) -> Any:
    """``text`` as one of the types. Raises ConfigurationError."""
    if bool in kinds:
        if text.lower() not in _WORDS:
            raise ConfigurationError(f"{name} is true or false, not {text!r}")
        return _WORDS[text.lower()]
    if list in kinds:
        return [each.strip() for each in text.split(",")]
    for number in (int, float):
        if number in kinds:
            try:
                return number(text)
            except ValueError:
                continue
    if str in kinds:
        return text
    raise ConfigurationError(f"{name} is a {'number' if float in kinds else 'whole number'}, not {text!r}")
