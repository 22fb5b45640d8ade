"""All topic configs of Kafka 3.9, the broker keys that they default to, and the LogConfig that they make up.

A topic's own setting overrides the broker's key. A config may default to several keys; the first one that is set counts
(``ServerTopicConfigSynonyms``).
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_broker.config import message_formats
from ottla_broker.config.log_keys import TIMESTAMP_TYPES, TopicDefaultKeys
from ottla_broker.config.model import (
    BOOLEAN,
    IGNORED,
    LIST,
    LONG,
    LONG_MAX,
    STRING,
    UNSUPPORTED,
    Key,
    Validator,
    at_least,
    one_of,
)
from ottla_broker.log.config import LogConfig
from ottla_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from ottla_broker.config.broker import BrokerConfig

_HOUR_MS = 3_600_000
_MINUTE_MS = 60_000


class Synonym(NamedTuple):
    """A broker key that a topic config defaults to; ``factor`` converts its unit."""

    name: str
    factor: int = 1


def _like(broker_key: Key[Any], meaning: str | None = None) -> tuple[Key[Any], tuple[Synonym, ...]]:
    """Declare a topic config like a broker key, with another name."""
    key: Key[Any] = Key(
        broker_key.kind,
        broker_key.default,
        meaning or broker_key.meaning,
        broker_key.validator,
        effect=broker_key.effect,
        note=broker_key.note,
    )
    return key, (Synonym(broker_key.name),)


def _own(key: Key[Any], *synonyms: Synonym) -> tuple[Key[Any], tuple[Synonym, ...]]:
    return key, synonyms


def _unsupported(kind: str, default: object, meaning: str, note: str) -> Key[Any]:
    return Key(kind, default, meaning, effect=UNSUPPORTED, note=note)


_NO_TIERS = "Tiered storage is not built yet."
_THROTTLED = Validator(
    lambda entries: (
        None
        if tuple(entries) == ("*",)
        or all(re.fullmatch(r"([0-9]+:[0-9]+)?", each.strip()) for each in entries)
        else "it must be the literal '*' or a list of replicas in the following format:"
        " [partitionId]:[brokerId],[partitionId]:[brokerId],..."
    ),
    "* or PARTITION:BROKER,…",
)


def _throttled(side: str) -> tuple[Key[Any], tuple[Synonym, ...]]:
    meaning = f"The replicas that {side}.replication.throttled.rate limits, as PARTITION:BROKER; * for all."
    return Key(LIST, (), meaning, _THROTTLED), ()


_D = TopicDefaultKeys
_DECLARED: dict[str, tuple[Key[Any], tuple[Synonym, ...]]] = {
    "cleanup.policy": _like(_D.log_cleanup_policy),
    "compression.gzip.level": _like(_D.compression_gzip_level),
    "compression.lz4.level": _like(_D.compression_lz4_level),
    "compression.type": _like(_D.compression_type),
    "compression.zstd.level": _like(_D.compression_zstd_level),
    "delete.retention.ms": _like(_D.log_cleaner_delete_retention_ms),
    "file.delete.delay.ms": _like(_D.log_segment_delete_delay_ms),
    "flush.messages": _like(_D.log_flush_interval_messages),
    "flush.ms": _own(
        Key(LONG, LONG_MAX, _D.log_flush_interval_ms.meaning, at_least(0)),
        Synonym("log.flush.interval.ms"),
        Synonym("log.flush.scheduler.interval.ms"),
    ),
    "follower.replication.throttled.replicas": _throttled("follower"),
    "index.interval.bytes": _like(_D.log_index_interval_bytes),
    "leader.replication.throttled.replicas": _throttled("leader"),
    "local.retention.bytes": _own(
        _unsupported(LONG, -2, "Bytes of a tiered partition to keep on local disk.", _NO_TIERS),
        Synonym("log.local.retention.bytes"),
    ),
    "local.retention.ms": _own(
        _unsupported(LONG, -2, "Time to keep a tiered partition's segments on local disk.", _NO_TIERS),
        Synonym("log.local.retention.ms"),
    ),
    "max.compaction.lag.ms": _like(_D.log_cleaner_max_compaction_lag_ms),
    "max.message.bytes": _like(_D.message_max_bytes),
    "message.downconversion.enable": _like(_D.log_message_downconversion_enable),
    "message.format.version": _own(
        Key(
            STRING,
            message_formats.DEFAULT,
            "The Kafka version whose message format the log has.",
            message_formats.IS_VERSION,
            effect=IGNORED,
            note="It has no effect: logs have format 2, as in Kafka with inter.broker.protocol.version 3.0 or later.",
        ),
        Synonym("log.message.format.version"),
    ),
    "message.timestamp.after.max.ms": _like(_D.log_message_timestamp_after_max_ms),
    "message.timestamp.before.max.ms": _like(_D.log_message_timestamp_before_max_ms),
    "message.timestamp.difference.max.ms": _like(
        _D.log_message_timestamp_difference_max_ms,
        "The older config for both directions, used for each of message.timestamp.before.max.ms and"
        " message.timestamp.after.max.ms that isn't set.",
    ),
    "message.timestamp.type": _own(
        Key(STRING, "CreateTime", _D.log_message_timestamp_type.meaning, one_of(*TIMESTAMP_TYPES)),
        Synonym("log.message.timestamp.type"),
    ),
    "min.cleanable.dirty.ratio": _like(_D.log_cleaner_min_cleanable_ratio),
    "min.compaction.lag.ms": _like(_D.log_cleaner_min_compaction_lag_ms),
    "min.insync.replicas": _like(_D.min_insync_replicas),
    "preallocate": _like(_D.log_preallocate),
    "remote.log.copy.disable": _own(
        _unsupported(BOOLEAN, False, "Stop copying a tiered topic's segments.", _NO_TIERS)
    ),
    "remote.log.delete.on.disable": _own(
        _unsupported(BOOLEAN, False, "Delete remote segments when tiering is switched off.", _NO_TIERS)
    ),
    "remote.storage.enable": _own(
        _unsupported(BOOLEAN, False, "Move closed segments to remote storage.", _NO_TIERS)
    ),
    "retention.bytes": _like(_D.log_retention_bytes),
    "retention.ms": _own(
        Key(LONG, 168 * _HOUR_MS, _D.log_retention_ms.meaning, at_least(-1)),
        Synonym("log.retention.ms"),
        Synonym("log.retention.minutes", _MINUTE_MS),
        Synonym("log.retention.hours", _HOUR_MS),
    ),
    "segment.bytes": _like(_D.log_segment_bytes),
    "segment.index.bytes": _like(_D.log_index_size_max_bytes),
    "segment.jitter.ms": _own(
        Key(
            LONG,
            0,
            "The most that is subtracted from segment.ms at random, so that logs don't roll together.",
            at_least(0),
        ),
        Synonym("log.roll.jitter.ms"),
        Synonym("log.roll.jitter.hours", _HOUR_MS),
    ),
    "segment.ms": _own(
        Key(LONG, 168 * _HOUR_MS, _D.log_roll_ms.meaning, at_least(1)),
        Synonym("log.roll.ms"),
        Synonym("log.roll.hours", _HOUR_MS),
    ),
    "unclean.leader.election.enable": _like(_D.unclean_leader_election_enable),
}
for _name, (_key, _) in _DECLARED.items():
    _key.name = _name

TOPIC_KEYS: Final[Mapping[str, Key[Any]]] = {name: key for name, (key, _) in _DECLARED.items()}
"""Every topic config by name."""

SYNONYMS: Final[Mapping[str, tuple[Synonym, ...]]] = {
    name: synonyms for name, (_, synonyms) in _DECLARED.items()
}
"""The broker keys that each one defaults to, in order."""

_FIELDS = [
    (name, name.replace(".", "_")) for name in TOPIC_KEYS if name.replace(".", "_") in LogConfig.__slots__
]


_EACH_DIRECTION: Final = ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms")
"""Configs that default to the older one for both directions."""


def broker_default(config: BrokerConfig, name: str) -> Any:
    """Return the value for topics that don't set this config."""
    key, synonyms = _DECLARED[name]
    if len(synonyms) == 1:
        if key.effect == UNSUPPORTED:
            # A key that isn't supported yet has its default.
            return key.default
        if key.effect == IGNORED:
            return config.get(synonyms[0].name)
        value = getattr(config, synonyms[0].name.replace(".", "_"))
        if name in _EACH_DIRECTION and value == LONG_MAX:
            return config.log_message_timestamp_difference_max_ms
        return value
    for synonym in synonyms:
        value = getattr(config, synonym.name.replace(".", "_"))
        if value is not None:
            # Any negative retention means unlimited.
            return -1 if value < 0 else value * synonym.factor
    return key.default


def effective(config: BrokerConfig, overrides: Mapping[str, str]) -> dict[str, Any]:
    """Return all configs of a topic with these (checked) settings of its own."""
    values = {name: broker_default(config, name) for name in TOPIC_KEYS}
    for name, text in overrides.items():
        values[name] = TOPIC_KEYS[name].parse(text)
    return values


def log_config(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Return the LogConfig of a topic with these (checked) settings of its own."""
    return _as_log_config(effective(config, overrides))


def _as_log_config(values: Mapping[str, Any]) -> LogConfig:
    fields = {attribute: values[name] for name, attribute in _FIELDS}
    for name in _EACH_DIRECTION:
        if values[name] == LONG_MAX:
            fields[name.replace(".", "_")] = values["message.timestamp.difference.max.ms"]
    policy = values["cleanup.policy"]
    return LogConfig(**fields, compact="compact" in policy, delete="delete" in policy)


def check_topic_config(name: str, text: str) -> None:
    """Check one setting of a topic.

    Raises:
        InvalidValue: the key doesn't accept the value.
        ValueError: the name is unknown.
    """
    key = TOPIC_KEYS.get(name)
    if key is None:
        raise ValueError(_unknown(name))
    key.parse(text)


def _unknown(name: str) -> str:
    return f"Unknown topic config name: {name}"


def check_topic_configs(config: BrokerConfig, overrides: Mapping[str, str]) -> LogConfig:
    """Check a topic's own settings together, and return the resulting LogConfig.

    Raises:
        KafkaError: INVALID_CONFIG; a name is unknown, a feature isn't built yet, or two values contradict each other.
        InvalidValue: a value has the wrong type or is out of range; the message is Kafka's.
    """
    for name, text in overrides.items():
        key = TOPIC_KEYS.get(name)
        if key is None:
            raise KafkaError(ErrorCode.INVALID_CONFIG, _unknown(name))
        value = key.parse(text)
        if key.effect == UNSUPPORTED and key.is_requested(value):
            raise KafkaError(ErrorCode.INVALID_CONFIG, f"{name}={text} is not supported: {key.note}")
    values = effective(config, overrides)
    if values["min.compaction.lag.ms"] > values["max.compaction.lag.ms"]:
        raise KafkaError(
            ErrorCode.INVALID_CONFIG,
            f"min.compaction.lag.ms ({values['min.compaction.lag.ms']}) must not be more than"
            f" max.compaction.lag.ms ({values['max.compaction.lag.ms']})",
        )
    return _as_log_config(values)
