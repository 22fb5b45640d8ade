"""Settings of a single listener: ``listener.name.<name in lower case>.<key>`` overrides ``<key>`` for that listener.

A SASL mechanism in lower case may stand before the key: ``listener.name.clients.plain.sasl.jaas.config``.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from typing import Any, Final, NamedTuple

from ottla_broker.config.model import Key, keys_of, nearest
from ottla_broker.config.oauth_keys import OAuthKeys
from ottla_broker.config.quota_keys import QuotaKeys
from ottla_broker.config.security_keys import SaslKeys, TlsKeys
from ottla_broker.config.server_keys import NetworkKeys

PREFIX: Final = "listener.name."


_MECHANISMS: Final = frozenset(("gssapi", "plain", "scram-sha-256", "scram-sha-512", "oauthbearer"))
_OF_MECHANISMS: Final = frozenset(
    (SaslKeys.sasl_jaas_config.name, SaslKeys.connections_max_reauth_ms.name, *keys_of(OAuthKeys))
)
"""The keys that can be set for one mechanism."""
_GLOBAL: Final = frozenset((SaslKeys.connection_failed_authentication_delay_ms.name,))
LIMITS: Final = (NetworkKeys.max_connections, QuotaKeys.max_connection_creation_rate)
"""Limits that a listener has in addition to the broker's: it doesn't take over those of the broker."""


class ListenerSetting(NamedTuple):
    """A setting of a single listener. Listener and mechanism are in lower case; without a mechanism it is empty."""

    listener: str
    mechanism: str
    key: Key[Any]


@cache
def scoped_keys() -> Mapping[str, Key[Any]]:
    """The keys that can be set for one listener."""
    found = {
        name: key
        for owner in (TlsKeys, SaslKeys, OAuthKeys)
        for name, key in keys_of(owner).items()
        if name not in _GLOBAL
    }
    return {**found, **{key.name: key for key in LIMITS}}


def listener_setting(name: str) -> ListenerSetting | None:
    """The parts of a setting's name; None unless ``name`` is a setting of a listener.

    Listeners' names may have dots, so the longest known key at the end counts.
    """
    if not name.startswith(PREFIX):
        return None
    rest = name[len(PREFIX) :]
    keys = scoped_keys()
    dot = rest.find(".")
    while dot > 0:
        if (key := keys.get(rest[dot + 1 :])) is not None:
            listener, between, mechanism = rest[:dot].rpartition(".")
            if between and mechanism in _MECHANISMS:
                return ListenerSetting(listener, mechanism, key) if key.name in _OF_MECHANISMS else None
            return ListenerSetting(rest[:dot], "", key)
        dot = rest.find(".", dot + 1)
    return None


def unknown(name: str) -> str:
    """Return why ``name`` isn't a setting of a listener."""
    rest = name[len(PREFIX) :].partition(".")[2]
    like = nearest(rest, scoped_keys())
    return f"{rest or name} can't be set for a single listener" + (f"; did you mean {like}?" if like else "")


def full_name(listener: str, key: Key[Any], mechanism: str = "") -> str:
    """The name of a key's setting for a listener, and perhaps for one of its mechanisms."""
    middle = f"{mechanism.lower()}." if mechanism else ""
    return f"{PREFIX}{listener.lower()}.{middle}{key.name}"
