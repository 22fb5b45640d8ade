"""The keys of Kafka 3.9 that do nothing here, with the reasons."""

from __future__ import annotations

from typing import Any

from ottla_broker.config import ignored_keys, message_formats, unsupported_keys
from ottla_broker.config.model import IGNORED, UNSUPPORTED, Key

# Values other than the default that request no missing feature.
_HARMLESS: dict[str, tuple[object, ...]] = {
    "process.roles": ((),),
    # Java needs these for TLS; Ottla's TLS client behaves that way anyway.
    "zookeeper.clientCnxnSocket": ("org.apache.zookeeper.ClientCnxnSocketNetty",),
    "zookeeper.ssl.protocol": ("TLSv1.3", "TLS"),
    "ssl.protocol": ("TLS", "TLSv1.2"),
    "ssl.allow.dn.changes": (True,),
    "ssl.allow.san.changes": (True,),
    "log.message.format.version": message_formats.HARMLESS,
}

_VALIDATORS = {"log.message.format.version": message_formats.IS_VERSION}

_REFUSED = (
    (
        unsupported_keys.ZOOKEEPER,
        "Connections to ZooKeeper use TLS 1.2 or 1.3 with OpenSSL's choice of ciphers, and don't check for"
        " revoked certificates.",
    ),
    (
        unsupported_keys.KRAFT,
        "There is no KRaft quorum: a broker is standalone, or in a cluster on ZooKeeper.",
    ),
    (
        unsupported_keys.TLS,
        "TLS is OpenSSL's; ssl.enabled.protocols chooses its versions, and new certificates may have other names.",
    ),
    (
        unsupported_keys.SECURITY,
        "Kerberos and security plug-ins in Java are not built yet, and tokens are renewed at fixed times.",
    ),
    (unsupported_keys.PLUGINS, "This broker can't load Java classes."),
    (unsupported_keys.REMOTE, "Tiered storage is not built yet."),
)

_UNUSED = (
    (ignored_keys.REMOTE, "tiered storage is not built yet."),
    (ignored_keys.KRAFT, "there is no KRaft quorum."),
    (ignored_keys.BETWEEN_BROKERS, "connections between brokers have fixed settings here."),
    (ignored_keys.MOVES, "moves between data folders have fixed settings here."),
    (
        ignored_keys.COORDINATORS,
        "a commit always waits for all in-sync replicas, and loading is paced by time.",
    ),
    (
        ignored_keys.GROUPS,
        "one group coordinator serves both group protocols here, on the broker's one thread.",
    ),
    (ignored_keys.SHARE_GROUPS, "as in Kafka since 4.1, the number of share groups has no limit."),
    (
        ignored_keys.FORMATS,
        "logs have format 2, as in Kafka with inter.broker.protocol.version 3.0 or later.",
    ),
    (ignored_keys.METERS, "/metrics has fixed windows and no plug-ins."),
    (ignored_keys.INNER, "it tunes an internal part of Apache Kafka that Ottla doesn't have."),
)


def other_keys() -> dict[str, Key[Any]]:
    """Return these keys by name; the note of each is the reason."""
    found: dict[str, Key[Any]] = {}
    for tables, effect in ((_REFUSED, UNSUPPORTED), (_UNUSED, IGNORED)):
        for rows, reason in tables:
            for name, kind, default, meaning in rows:
                found[name] = Key(
                    kind,
                    default,
                    meaning,
                    _VALIDATORS.get(name),
                    name=name,
                    effect=effect,
                    note=reason,
                    harmless=_HARMLESS.get(name, ()),
                )
    return found
