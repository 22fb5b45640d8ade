"""Checks the keys about ZooKeeper against each other."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from ottla_broker.config.cluster_keys import PEM, ClusterKeys
from ottla_broker.config.model import ConfigError
from ottla_broker.store.zookeeper_settings import parse_connect

_OTHER_STORES: Final = (".jks", ".p12", ".pfx", ".bcfks")

_ONLY_WITH_TLS: Final = (
    "zookeeper.ssl.keystore.location",
    "zookeeper.ssl.keystore.password",
    "zookeeper.ssl.truststore.location",
)


def check_zookeeper(
    config: ClusterKeys, given: Mapping[str, str], error: Callable[[str, str], ConfigError]
) -> list[str]:
    """Check the keys of a broker in a cluster against each other.

    ``given`` has the keys set at start; ``error`` makes the error for a key. Returns warnings.

    Raises ConfigError: from ``error``.
    """
    assert config.zookeeper_connect is not None
    try:
        parse_connect(config.zookeeper_connect)
    except ValueError as caught:
        raise error(
            "zookeeper.connect",
            f"{caught}; write host:port separated by commas, optionally followed by a path",
        ) from caught
    wait = config.replica_fetch_wait_max_ms
    for name, limit in (
        ("replica.socket.timeout.ms", config.replica_socket_timeout_ms),
        ("replica.lag.time.max.ms", config.replica_lag_time_max_ms),
    ):
        if wait > limit:
            raise error("replica.fetch.wait.max.ms", f"{wait} must not be more than {name} ({limit})")
    user = config.zookeeper_digest_user
    _check_user("zookeeper.digest", user, config.zookeeper_digest_password, error)
    if user is not None and (not user or ":" in user):
        raise error("zookeeper.digest.user", "must not be empty or contain a colon")
    sasl_user = config.zookeeper_sasl_user
    _check_user("zookeeper.sasl", sasl_user, config.zookeeper_sasl_password, error)
    if sasl_user == "":
        raise error("zookeeper.sasl.user", "must not be empty")
    if sasl_user is not None and user is not None:
        raise error("zookeeper.sasl.user", "can't be set together with zookeeper.digest.user")
    if config.zookeeper_ssl_truststore_password is not None:
        raise error(
            "zookeeper.ssl.truststore.password",
            "PEM files with certificates have no password; remove the key",
        )
    for name, kind, location in (
        (
            "zookeeper.ssl.keystore.location",
            config.zookeeper_ssl_keystore_type,
            config.zookeeper_ssl_keystore_location,
        ),
        (
            "zookeeper.ssl.truststore.location",
            config.zookeeper_ssl_truststore_type,
            config.zookeeper_ssl_truststore_location,
        ),
    ):
        if kind is None and location is not None and location.lower().endswith(_OTHER_STORES):
            raise error(name, f"{location}: {PEM.check(location.rpartition('.')[2].upper())}")
    certified = config.zookeeper_ssl_client_enable and config.zookeeper_ssl_keystore_location is not None
    if config.zookeeper_set_acl and user is None and sasl_user is None and not certified:
        raise error(
            "zookeeper.set.acl",
            "needs an owner for the znodes: set zookeeper.sasl.user and zookeeper.sasl.password,"
            " zookeeper.digest.user and zookeeper.digest.password, or"
            " zookeeper.ssl.client.enable=true and zookeeper.ssl.keystore.location",
        )
    if config.zookeeper_ssl_client_enable:
        return []
    return [
        f"{name} has no effect: zookeeper.ssl.client.enable is not true"
        for name in _ONLY_WITH_TLS
        if given.get(name)
    ]


def _check_user(
    prefix: str, user: str | None, password: str | None, error: Callable[[str, str], ConfigError]
) -> None:
    if (user is None) != (password is None):
        missing = f"{prefix}.user" if user is None else f"{prefix}.password"
        raise error(missing, "is missing: a ZooKeeper user has a name and a password")
