"""The configs of single groups, which IncrementalAlterConfigs changes at runtime. Kafka: ``GroupConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from ottla_broker.config.model import CLUSTER_WIDE, INT, InvalidValue, Key, at_least

if TYPE_CHECKING:
    from ottla_broker.config.broker import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

GROUP_KEYS: Final[Mapping[str, Key[Any]]] = {
    HEARTBEAT_INTERVAL: Key(
        INT,
        5000,
        "The heartbeat interval of the group's members.",
        at_least(1),
        CLUSTER_WIDE,
        name=HEARTBEAT_INTERVAL,
    ),
    SESSION_TIMEOUT: Key(
        INT,
        45000,
        "The session timeout of the group's members.",
        at_least(1),
        CLUSTER_WIDE,
        name=SESSION_TIMEOUT,
    ),
}
"""By name. Their defaults are the broker's keys, which begin with ``group.``."""


def sets_heartbeat_interval(config: BrokerConfig, settings: Mapping[str, str]) -> bool:
    """Whether the broker's configs or a group's settings say how often its members heartbeat."""
    return HEARTBEAT_INTERVAL in settings or config.is_given(f"group.{HEARTBEAT_INTERVAL}")


def group_times(config: BrokerConfig, settings: Mapping[str, str]) -> tuple[int, int]:
    """The session timeout and the heartbeat interval of a group with these settings, in ms."""
    session = settings.get(SESSION_TIMEOUT)
    heartbeat = settings.get(HEARTBEAT_INTERVAL)
    return (
        config.group_consumer_session_timeout_ms if session is None else int(session),
        config.group_consumer_heartbeat_interval_ms if heartbeat is None else int(heartbeat),
    )


def check_group_config(name: str, text: str) -> None:
    """Check a single setting. Raises ValueError for an unknown one, or a value that it can't have."""
    key = GROUP_KEYS.get(name)
    if key is None:
        raise ValueError(f"Unknown group config name: {name}")
    key.parse(text)


def check_group_configs(config: BrokerConfig, settings: Mapping[str, str]) -> None:
    """Check a group's settings, each and together (``GroupConfig.validate``). Raises ValueError."""
    for name, text in settings.items():
        check_group_config(name, text)
    session, heartbeat = group_times(config, settings)
    for name, value, least, most in (
        (
            HEARTBEAT_INTERVAL,
            heartbeat,
            config.group_consumer_min_heartbeat_interval_ms,
            config.group_consumer_max_heartbeat_interval_ms,
        ),
        (
            SESSION_TIMEOUT,
            session,
            config.group_consumer_min_session_timeout_ms,
            config.group_consumer_max_session_timeout_ms,
        ),
    ):
        what = name.removeprefix("consumer.")
        if value < least:
            reason = f"must be greater than or equal to group.consumer.min.{what} ({least})"
            raise InvalidValue(name, value, reason)
        if value > most:
            reason = f"must be less than or equal to group.consumer.max.{what} ({most})"
            raise InvalidValue(name, value, reason)
    if session <= heartbeat:
        raise InvalidValue(
            SESSION_TIMEOUT, session, f"must be greater than {HEARTBEAT_INTERVAL} ({heartbeat})"
        )
