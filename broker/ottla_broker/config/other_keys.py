"""The keys of Kafka 3.9 that do nothing here, with the reasons."""

from __future__ import annotations

from typing import Any

from ottla_broker.config import message_formats
from ottla_broker.config.ignored_keys import IGNORED_KEYS, LEAST, NEVER_EMPTY
from ottla_broker.config.model import (
    IGNORED,
    INT_MAX,
    UNSUPPORTED,
    Key,
    Validator,
    at_least,
    between,
    between_or,
)
from ottla_broker.config.unsupported_keys import UNSUPPORTED_KEYS

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

_NOT_EMPTY = Validator(lambda text: None if text else "String must be non-empty", "any text")
_VALIDATORS = {
    **{name: at_least(least) for name, least in LEAST.items()},
    **dict.fromkeys(NEVER_EMPTY, _NOT_EMPTY),
    **dict.fromkeys(
        ("inter.broker.protocol.version", "log.message.format.version"), message_formats.IS_VERSION
    ),
    "group.share.max.groups": between(1, 100),
    "remote.log.manager.copier.thread.pool.size": between_or(1, INT_MAX, -1),
    "remote.log.manager.expiration.thread.pool.size": between_or(1, INT_MAX, -1),
    "remote.log.manager.task.retry.jitter": between(0, 0.5),
}


def other_keys() -> dict[str, Key[Any]]:
    """Return these keys by name; the note of each is the reason."""
    found: dict[str, Key[Any]] = {}
    for tables, effect in ((UNSUPPORTED_KEYS, UNSUPPORTED), (IGNORED_KEYS, IGNORED)):
        for reason, rows in tables.items():
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
