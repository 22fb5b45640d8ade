"""Configs in the form of DescribeConfigs: value, source, synonyms, type, documentation.

As in Kafka's ``ConfigHelper``, a value's source is that of its first synonym, in the order topic, dynamic broker,
dynamic cluster default, static, default. Synonyms before the first one with the config's own name are left out. So
``retention.ms`` is a default if only ``log.retention.hours`` was set.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from ottla_broker.config.broker import BrokerConfig, all_keys, key_of
from ottla_broker.config.client_metrics import CLIENT_METRICS_KEYS
from ottla_broker.config.group_configs import GROUP_KEYS
from ottla_broker.config.listener_settings import listener_setting
from ottla_broker.config.model import (
    BOOLEAN,
    CLASS,
    DOUBLE,
    INT,
    LIST,
    LONG,
    PASSWORD,
    READ_ONLY,
    SHORT,
    STRING,
    Key,
    format_value,
)
from ottla_broker.config.topics import SYNONYMS, TOPIC_KEYS, effective

# ConfigSource's codes.
TOPIC_CONFIG: Final = 1
DYNAMIC_BROKER_CONFIG: Final = 2
DYNAMIC_DEFAULT_BROKER_CONFIG: Final = 3
STATIC_BROKER_CONFIG: Final = 4
DEFAULT_CONFIG: Final = 5
CLIENT_METRICS_CONFIG: Final = 7
GROUP_CONFIG: Final = 8

# ConfigType's codes; 0 is unknown.
_TYPES: Final = {
    BOOLEAN: 1,
    STRING: 2,
    INT: 3,
    SHORT: 4,
    LONG: 5,
    DOUBLE: 6,
    LIST: 7,
    CLASS: 8,
    PASSWORD: 9,
}

# Broker keys with several names, in order (DynamicBrokerConfig.brokerConfigSynonyms).
_GROUPS = (
    ("log.roll.ms", "log.roll.hours"),
    ("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
)
_BROKER_SYNONYMS: Final[Mapping[str, tuple[str, ...]]] = {
    **{name: group for group in _GROUPS for name in group},
    "log.flush.interval.ms": ("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
}

# Kafka has these only as settings made at runtime: they are shown only then, and have no default.
_MADE_AT_RUNTIME: Final = frozenset(
    {
        "leader.replication.throttled.rate",
        "follower.replication.throttled.rate",
        "replica.alter.log.dirs.io.max.bytes.per.second",
    }
)

# Kafka's internal keys, shown only if they were given.
_INTERNAL: Final = frozenset(
    {
        "group.consumer.migration.policy",
        "group.coordinator.new.enable",
        "group.share.enable",
        "log.initial.task.delay.ms",
        "metadata.log.segment.min.bytes",
        "producer.id.expiration.check.interval.ms",
        "remote.log.manager.task.retry.backoff.max.ms",
        "remote.log.manager.task.retry.backoff.ms",
        "remote.log.manager.task.retry.jitter",
        "server.max.startup.time.ms",
        "unclean.leader.election.interval.ms",
        "unstable.api.versions.enable",
        "unstable.feature.versions.enable",
        "zookeeper.metadata.migration.min.batch.size",
    }
)


class SynonymEntry(NamedTuple):
    """A possible source of a value, and the value there."""

    name: str
    value: str | None
    source: int


@dataclass(slots=True)
class ConfigEntry:
    """One config; ``value`` is None if it has none or is sensitive."""

    name: str
    value: str | None
    source: int
    read_only: bool = False
    sensitive: bool = False
    type: int = 0
    documentation: str | None = None
    synonyms: list[SynonymEntry] = field(default_factory=list)


def _entry(
    name: str, key: Key[Any], value: str | None, synonyms: list[SynonymEntry], *, read_only: bool = False
) -> ConfigEntry:
    """A config whose source is that of its first synonym."""
    return ConfigEntry(
        name,
        None if key.sensitive else value,
        synonyms[0].source if synonyms else DEFAULT_CONFIG,
        read_only,
        key.sensitive,
        _TYPES[key.kind],
        key.documentation,
        synonyms,
    )


def _wanted(known: Iterable[str], names: Iterable[str] | None) -> Iterable[str]:
    return known if names is None else [name for name in names if name in known]


def describe_topic(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe a topic's configs, or those in ``names``; ``overrides`` are its own settings."""
    values = effective(config, overrides)
    entries = []
    for name in _wanted(TOPIC_KEYS, names):
        key = TOPIC_KEYS[name]
        value = format_value(key.kind, values[name])
        synonyms = _broker_sources(config, SYNONYMS[name][0].name) if SYNONYMS[name] else []
        if name in overrides:
            synonyms.insert(0, SynonymEntry(name, value, TOPIC_CONFIG))
        entries.append(_entry(name, key, value, synonyms))
    return entries


def describe_group(
    config: BrokerConfig, overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe a group's configs, or those in ``names``; ``overrides`` are its own settings."""
    entries = []
    for name in _wanted(GROUP_KEYS, names):
        synonyms = _broker_sources(config, f"group.{name}")
        if name in overrides:
            synonyms.insert(0, SynonymEntry(name, overrides[name], GROUP_CONFIG))
        value = overrides.get(name, _group_default(config, name))
        entries.append(_entry(name, GROUP_KEYS[name], value, synonyms))
    return entries


def describe_client_metrics(
    overrides: Mapping[str, str], names: Iterable[str] | None = None
) -> list[ConfigEntry]:
    """Describe a client metrics subscription, or what of it is in ``names`` (KIP-714).

    One that isn't there has the defaults alone, as in Kafka 4; Kafka 3.9 lists only what is set.
    """
    entries = []
    for name in _wanted(CLIENT_METRICS_KEYS, names):
        key = CLIENT_METRICS_KEYS[name]
        own = overrides.get(name)
        synonyms = [] if own is None else [SynonymEntry(name, own, CLIENT_METRICS_CONFIG)]
        entries.append(
            _entry(name, key, format_value(key.kind, key.default) if own is None else own, synonyms)
        )
    return entries


def _group_default(config: BrokerConfig, name: str) -> str | None:
    """The broker's key of this name, or the default of a config that the broker has no key for."""
    if f"group.{name}" in all_keys():
        return config.text(f"group.{name}")
    key = GROUP_KEYS[name]
    return format_value(key.kind, key.default)


def describe_broker(config: BrokerConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """Describe this broker's configs, including unknown ones that were given, as Kafka does."""
    known = all_keys().keys() - _INTERNAL - _MADE_AT_RUNTIME
    known |= config.static.keys() | config.dynamic_broker.keys() | config.dynamic_default.keys()
    return [_broker_entry(config, name) for name in _wanted(sorted(known), names)]


def describe_cluster_default(config: BrokerConfig, names: Iterable[str] | None = None) -> list[ConfigEntry]:
    """Describe the settings made at runtime for all brokers."""
    given = config.dynamic_default
    entries = []
    for name in _wanted(sorted(given), names):
        entry = _broker_entry(config, name)
        entry.synonyms = [s for s in entry.synonyms if s.source == DYNAMIC_DEFAULT_BROKER_CONFIG]
        entry.value = None if entry.sensitive else given[name]
        entry.source = DYNAMIC_DEFAULT_BROKER_CONFIG
        entries.append(entry)
    return entries


def _broker_entry(config: BrokerConfig, name: str) -> ConfigEntry:
    key = key_of(name)
    if key is None:
        # An unknown key may hold anything, even a password.
        source = SynonymEntry(name, None, STATIC_BROKER_CONFIG)
        return ConfigEntry(name, None, STATIC_BROKER_CONFIG, True, True, synonyms=[source])
    return _entry(
        name, key, _text(config, name), _broker_sources(config, name), read_only=key.mode == READ_ONLY
    )


def _text(config: BrokerConfig, name: str) -> str | None:
    """The value in force, also of a single listener's setting."""
    found = listener_setting(name)
    if found is None:
        return config.text(name)
    value = config.of_listener(found.listener, found.key, mechanism=found.mechanism)
    return format_value(found.key.kind, value)


def _broker_sources(config: BrokerConfig, name: str) -> list[SynonymEntry]:
    """Return all possible sources of a broker setting, the strongest first."""
    names = _BROKER_SYNONYMS.get(name, (name,))
    keys = dict(all_keys())
    if (setting := listener_setting(name)) is not None:
        names = (name, setting.key.name)
        keys[name] = setting.key
    found: list[SynonymEntry] = []
    for layer, source in (
        (config.dynamic_broker, DYNAMIC_BROKER_CONFIG),
        (config.dynamic_default, DYNAMIC_DEFAULT_BROKER_CONFIG),
        (config.static, STATIC_BROKER_CONFIG),
    ):
        found += [
            SynonymEntry(n, None if keys[n].sensitive else layer[n], source) for n in names if n in layer
        ]
    for n in names:
        if n not in all_keys() or n in _MADE_AT_RUNTIME:
            continue
        default = format_value(keys[n].kind, keys[n].default)
        if default is not None:
            found.append(SynonymEntry(n, None if keys[n].sensitive else default, DEFAULT_CONFIG))
    while found and found[0].name != name:
        del found[0]
    return found
