"""AlterConfigs and IncrementalAlterConfigs of topics, groups and brokers, in a cluster and in a broker alone.

Kafka's ``ConfigAdminManager``.
"""

from __future__ import annotations

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Awaitable, Mapping, Sequence
from typing import Any, Final

from ottla_broker.config import BrokerConfig, InvalidValue
from ottla_broker.config.broker import all_keys, key_of
from ottla_broker.config.client_metrics import (
    CLIENT_METRICS_KEYS,
    MATCH,
    check_client_metrics_config,
    read_match,
)
from ottla_broker.config.group_configs import GROUP_KEYS, check_group_configs
from ottla_broker.config.message_formats import message_format
from ottla_broker.config.model import LIST, PER_BROKER, Key, format_value
from ottla_broker.config.topics import TOPIC_KEYS, check_topic_configs
from ottla_broker.controller.api import ConfigChange, ConfigOperation, Outcome, ResourceType
from ottla_broker.controller.stored_passwords import StoredPasswords
from ottla_broker.events import get_logger
from ottla_broker.log.config import LogConfig
from ottla_broker.metadata.cache import MetadataCache
from ottla_broker.store.api import StoreError
from ottla_broker.store.keys import DEFAULT_ENTITY, ConfigNode
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.records.batch import MAGIC

_FORMAT_VERSION: Final = "message.format.version"
_KEYS: Final[Mapping[ResourceType, Mapping[str, Key[Any]]]] = {
    ResourceType.TOPIC: TOPIC_KEYS,
    ResourceType.GROUP: GROUP_KEYS,
    ResourceType.CLIENT_METRICS: CLIENT_METRICS_KEYS,
}
"""The settings of what isn't a broker."""

_log = get_logger()


class ConfigAdmin(ABC):
    """The part of both controllers that changes configs, one change at a time, under ``_lock``."""

    _config: BrokerConfig
    _metadata: MetadataCache
    _passwords: StoredPasswords
    _lock: asyncio.Lock

    @abstractmethod
    async def _read_configs(self, kind: ResourceType, name: str) -> Mapping[str, str]:
        """An entity's own settings."""

    @abstractmethod
    async def _apply_configs(self, kind: ResourceType, name: str, settings: Mapping[str, str]) -> None:
        """Store an entity's settings and put them in force. Raises KafkaError, StoreError."""

    async def replace_configs(
        self, kind: ResourceType, name: str, configs: Mapping[str, str | None], validate_only: bool
    ) -> Outcome:
        """AlterConfigs: settings that aren't named go back to their defaults."""
        settings = {key: value for key, value in configs.items() if value is not None}
        async with self._lock:
            return await outcome_of(self._set_configs(kind, name, settings, validate_only))

    async def alter_configs(
        self, kind: ResourceType, name: str, changes: Sequence[ConfigChange], validate_only: bool
    ) -> Outcome:
        """IncrementalAlterConfigs: settings that aren't named stay."""

        async def change() -> None:
            self._check_entity(kind, name)
            keys = _KEYS.get(kind) or all_keys()
            settings = apply_changes(await self._read_configs(kind, name), changes, keys)
            await self._set_configs(kind, name, settings, validate_only)

        async with self._lock:
            return await outcome_of(change())

    async def _set_configs(
        self, kind: ResourceType, name: str, settings: Mapping[str, str], validate_only: bool
    ) -> None:
        self._check_entity(kind, name)
        if kind is ResourceType.TOPIC:
            check_topic(self._config, name, settings)
        elif kind is ResourceType.GROUP:
            check_group(self._config, name, settings)
        elif kind is ResourceType.CLIENT_METRICS:
            check_client_metrics(settings)
        else:
            check_broker(self._config, name, settings)
            self._passwords.check(settings)
        if not validate_only:
            await self._apply_configs(kind, name, settings)

    def _check_entity(self, kind: ResourceType, name: str) -> None:
        if kind is ResourceType.CLIENT_METRICS:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
            return
        if kind is ResourceType.GROUP:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "Default group resources are not allowed.")
            return
        if kind is not ResourceType.TOPIC:
            if name:
                check_own_id(self._config, name)
            return
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
        if self._metadata.topic(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")


async def outcome_of(work: Awaitable[None]) -> Outcome:
    """The outcome of some work that raises KafkaError or StoreError."""
    try:
        await work
    except KafkaError as error:
        return Outcome(error.code, error.message)
    except StoreError as error:
        return Outcome(ErrorCode.KAFKA_STORAGE_ERROR, str(error))
    return Outcome()


def entity_of(kind: ResourceType, name: str) -> tuple[str, str]:
    """The kind and name under which the store has an entity's settings; all brokers have the empty name."""
    if kind is ResourceType.TOPIC:
        return ConfigNode.TOPICS, name
    if kind is ResourceType.GROUP:
        return ConfigNode.GROUPS, ConfigNode.group_node_name(name)
    if kind is ResourceType.CLIENT_METRICS:
        return ConfigNode.CLIENT_METRICS, ConfigNode.group_node_name(name)
    return ConfigNode.BROKERS, name or DEFAULT_ENTITY


def resource_text(kind: ResourceType, name: str) -> str:
    """A resource as in Kafka's messages."""
    return f"ConfigResource(type={kind.name}, name='{name}')"


def apply_changes(
    before: Mapping[str, str], changes: Sequence[ConfigChange], keys: Mapping[str, Key[Any]]
) -> dict[str, str]:
    """An entity's own settings after some changes (``ConfigAdminManager.prepareIncrementalConfigs``).

    Raises KafkaError: INVALID_CONFIG for an operation that the config doesn't have.
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
    """A list with entries added or removed; an unset list starts from its default."""
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
    """Check a topic's settings; returns the config that would be in force.

    Raises KafkaError: INVALID_CONFIG with what is wrong.
    """
    try:
        checked = check_topic_configs(config, settings)
    except InvalidValue as error:
        resource = resource_text(ResourceType.TOPIC, name)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}"
        ) from error
    version = settings.get(_FORMAT_VERSION)
    if version is not None and message_format(version) < MAGIC:
        _log.warning("message format ignored, logs have format 2", topic=name, version=version)
    return checked


def check_group(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> None:
    """Check a group's settings. Raises KafkaError: INVALID_CONFIG with what is wrong."""
    try:
        check_group_configs(config, settings)
    except InvalidValue as error:
        resource = resource_text(ResourceType.GROUP, name)
        raise KafkaError(
            ErrorCode.INVALID_CONFIG, f"Invalid config value for resource {resource}: {error}"
        ) from error
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error


def check_client_metrics(settings: Mapping[str, str]) -> None:
    """Check the settings of a client metrics subscription (``ClientMetricsConfigs.validate``).

    Raises KafkaError: INVALID_REQUEST for unknown settings and intervals, INVALID_CONFIG for what can't be read.
    """
    for name, text in settings.items():
        try:
            check_client_metrics_config(name, text)
            if name == MATCH:
                # Imported here because few brokers have subscriptions.
                from ottla_broker.coordinator.group.modern.patterns import compile_pattern

                for expression in read_match(CLIENT_METRICS_KEYS[MATCH].parse(text)).values():
                    compile_pattern(expression)
        except InvalidValue as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error
        except ValueError as error:
            code = ErrorCode.INVALID_CONFIG if name == MATCH else ErrorCode.INVALID_REQUEST
            raise KafkaError(code, str(error)) from error
        except KafkaError as error:
            raise KafkaError(
                ErrorCode.INVALID_CONFIG, f"Illegal client matching pattern: {text}: {error.message}"
            ) from error


def check_broker(config: BrokerConfig, name: str, settings: Mapping[str, str]) -> None:
    """Check this broker's settings, or (empty name) those of all brokers.

    Raises KafkaError: INVALID_REQUEST for a config that can't change, and for a bad value.
    """
    own = sorted(each for each in settings if not name and _is_of_one_broker(each))
    if own:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Cannot update these configs at default cluster level, broker id must be specified: {', '.join(own)}",
        )
    try:
        config.check_dynamic(settings)
        if name:
            config.check_connection_limits(config.settings_with(settings))
            config.check_reconfiguration(settings)
        else:
            config.check_connection_limits({**config.static, **settings, **config.dynamic_broker})
    except ValueError as error:
        raise KafkaError(ErrorCode.INVALID_REQUEST, str(error)) from error


def _is_of_one_broker(name: str) -> bool:
    """Whether a setting is a broker's own: its certificates and logins."""
    key = key_of(name)
    return key is not None and key.mode == PER_BROKER and key.name.startswith(("ssl.", "sasl."))


def check_own_id(config: BrokerConfig, name: str, called: str = "Node id", other: str = "") -> None:
    """Raises KafkaError(INVALID_REQUEST) for a resource name that isn't this broker's number.

    Kafka's messages depend on the request: ``called`` is the word for the number, ``other`` follows what is expected.
    """
    if not name.isascii() or not name.removeprefix("-").isdigit():
        raise KafkaError(ErrorCode.INVALID_REQUEST, f"{called} must be an integer, but it is: {name}")
    if int(name) != config.broker_id:
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {config.broker_id}{other}, but received {name}",
        )
