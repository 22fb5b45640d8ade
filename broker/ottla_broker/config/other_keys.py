"""The keys of Kafka 3.9 that do nothing here, gathered with the reason why."""

from __future__ import annotations

from typing import Any

from ottla_broker.config import ignored_keys, unsupported_keys
from ottla_broker.config.model import IGNORED, UNSUPPORTED, Key

# Values beside the default that ask for nothing which isn't there.
_HARMLESS: dict[str, tuple[object, ...]] = {
    "authorizer.class.name": (None,),
    "security.inter.broker.protocol": ("PLAINTEXT",),
    "process.roles": ((),),
    # What Java needs for TLS, and what every TLS client does here.
    "zookeeper.clientCnxnSocket": ("org.apache.zookeeper.ClientCnxnSocketNetty",),
    "zookeeper.ssl.protocol": ("TLSv1.3", "TLS"),
    "ssl.endpoint.identification.algorithm": ("",),
    "sasl.enabled.mechanisms": ((),),
    "group.coordinator.rebalance.protocols": (("classic",),),
}

_REFUSED = (
    (
        unsupported_keys.ZOOKEEPER,
        "TLS towards ZooKeeper is TLS 1.2 or 1.3 with OpenSSL's choice of ciphers, and consults nobody about"
        " revocation.",
    ),
    (
        unsupported_keys.KRAFT,
        "There is no KRaft quorum: a broker is its own controller, or in a cluster on ZooKeeper.",
    ),
    (unsupported_keys.SECURITY, "TLS, SASL and authorization are not built yet."),
    (unsupported_keys.PLUGINS, "Java classes can't be loaded into this broker."),
    (unsupported_keys.REMOTE, "Tiered storage is not built yet."),
    (unsupported_keys.CONVERSION, "Records are kept and sent in format version 2 only."),
    (unsupported_keys.GROUPS, "Only groups of the classic protocol are built yet."),
)

_UNUSED = (
    (ignored_keys.REMOTE, "tiered storage is not built yet."),
    (ignored_keys.CLUSTER, "this broker stands alone."),
    (ignored_keys.SECURITY, "security is not built yet."),
    (
        ignored_keys.CLASSIC_GROUPS,
        "a commit is on all replicas in sync when it is answered, and loading is paced by time.",
    ),
    (ignored_keys.GROUPS, "only groups of the classic protocol are built yet."),
    (ignored_keys.TRANSACTIONS, "transactions are not built yet."),
    (ignored_keys.METERS, "metrics and quotas are not built yet."),
    (ignored_keys.INNER, "it sets something inside Apache Kafka that has no counterpart here."),
)


def other_keys() -> dict[str, Key[Any]]:
    """By name. A key's note is the reason."""
    found: dict[str, Key[Any]] = {}
    for tables, effect in ((_REFUSED, UNSUPPORTED), (_UNUSED, IGNORED)):
        for rows, reason in tables:
            for name, kind, default, meaning in rows:
                found[name] = Key(
                    kind,
                    default,
                    meaning,
                    name=name,
                    effect=effect,
                    note=reason,
                    harmless=_HARMLESS.get(name, ()),
                )
    return found
