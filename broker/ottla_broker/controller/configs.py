"""Changes of topics' and the broker's configs, worked out and checked, but not yet stored or in force."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from ottla_broker.config import BrokerConfig, InvalidValue
from ottla_broker.config.broker import all_keys
from ottla_broker.config.model import LIST, Key, format_value
from ottla_broker.config.topics import TOPIC_KEYS, check_topic_configs
from ottla_broker.controller.api import ConfigChange, ConfigOperation, ResourceType
from ottla_broker.log.config import LogConfig
from ottla_protocol.errors import ErrorCode, KafkaError


def resource_text(kind: ResourceType, name: str) -> str:
    """A resource as it stands in Kafka's messages."""
    return f"ConfigResource(type={kind.name}, name='{name}')"


def apply_changes(
    before: Mapping[str, str], changes: Sequence[ConfigChange], keys: Mapping[str, Key[Any]]
) -> dict[str, str]:
    """What an entity's own settings are after some changes
    (``ConfigAdminManager.prepareIncrementalConfigs``).

    Raises:
        KafkaError: INVALID_CONFIG for an operation that the config doesn't have.
    """
    after = dict(before)
    for change in changes:
        if change.operation is ConfigOperation.DELETE:
            after.pop(change.name, None)
            continue
        value = change.value or ""
        if change.operation is not ConfigOperation.SET:
            value = _change_list(after, change, keys)
        after[change.name] = value
    return after


def _change_list(settings: Mapping[str, str], change: ConfigChange, keys: Mapping[str, Key[Any]]) -> str:
    """A list with entries added or taken away; one that isn't set starts from its default."""
    key = keys.get(change.name)
    if key is None:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Unknown config name: {change.name}")
    if key.kind != LIST:
        verb = change.operation.name.lower()
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Config value {verb} is not allowed for config key: {change.name}"
        )
    text = settings.get(change.name)
    if text is None:
        text = format_value(LIST, key.default) or ""
    entries = text.split(",") if text else []
    given = (change.value or "").split(",")
    if change.operation is ConfigOperation.APPEND:
        entries += [entry for entry in given if entry not in entries]
    else:
        entries = [entry for entry in entries if entry not in given]
    return ",".join(entries)


def check_topic(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> LogConfig:
    """Whether a topic may have these; returns what would be in force.

    Raises:
        KafkaError: INVALID_CONFIG with what is wrong.
    """
    try:
        return check_topic_configs(config, settings)
    except InvalidValue as error:
        resource = resource_text(ResourceType.TOPIC, name)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}"
        ) from error


def check_broker(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> None:
    """Whether the broker (or, with an empty name, all of them) may have these.

    Raises:
        KafkaError: INVALID_REQUEST for another broker or a config that can't change, INVALID_CONFIG for a
        bad value.
    """
    if name:
        check_own_id(config, name)
    try:
        config.check_dynamic(settings)
    except InvalidValue as error:
        resource = resource_text(ResourceType.BROKER, name)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}"
        ) from error
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def check_own_id(config: BrokerConfig, name: str) -> None:
    """Raises KafkaError(INVALID_REQUEST) for a resource name that isn't this broker's number."""
    if not name.isascii() or not name.removeprefix("-").isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}")
    if int(name) != config.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {config.broker_id}, but received {name}",
        )


def keys_for(kind: ResourceType) -> Mapping[str, Key[Any]]:
    """The keys that a kind of resource has."""
    return TOPIC_KEYS if kind is ResourceType.TOPIC else all_keys()
