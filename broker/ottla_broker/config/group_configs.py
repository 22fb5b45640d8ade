"""The configs of single groups, which IncrementalAlterConfigs changes at runtime. Kafka: ``GroupConfig``."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from ottla_broker.config.model import (
    BOOLEAN,
    CLUSTER_WIDE,
    INT,
    STRING,
    InvalidValue,
    Key,
    Validator,
    at_least,
    between,
    one_of,
)

if TYPE_CHECKING:
    from ottla_broker.config.broker import BrokerConfig

SESSION_TIMEOUT: Final = "consumer.session.timeout.ms"
HEARTBEAT_INTERVAL: Final = "consumer.heartbeat.interval.ms"

SHARE_SESSION_TIMEOUT: Final = "share.session.timeout.ms"
SHARE_HEARTBEAT_INTERVAL: Final = "share.heartbeat.interval.ms"
SHARE_LOCK_DURATION: Final = "share.record.lock.duration.ms"
SHARE_DELIVERY_LIMIT: Final = "share.delivery.count.limit"
SHARE_RECORD_LOCKS: Final = "share.partition.max.record.locks"
SHARE_OFFSET_RESET: Final = "share.auto.offset.reset"
SHARE_ISOLATION: Final = "share.isolation.level"
SHARE_KEY_ORDERED: Final = "share.key.ordered"

_DURATION: Final = re.compile(
    r"by_duration:P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.IGNORECASE
)


def duration_ms(text: str) -> int | None:
    """The duration of ``by_duration:PnDTnHnMn.nS`` in ms; None for another text, and beyond 2^63 ms."""
    found = _DURATION.fullmatch(text)
    if found is None or not any(found.groups()):
        return None
    days, hours, minutes, seconds = (float(each or 0) for each in found.groups())
    total = (((days * 24 + hours) * 60 + minutes) * 60 + seconds) * 1000
    return int(total) if total < 2**63 else None


def _check_reset(text: str) -> str | None:
    if text.lower() in ("latest", "earliest") or duration_ms(text) is not None:
        return None
    return "must be latest, earliest, or by_duration: with an ISO 8601 duration such as PT1H"


def _share(name: str, default: int, meaning: str, check: Validator) -> Key[int]:
    return Key(INT, default, meaning, check, CLUSTER_WIDE, name=name)


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
    SHARE_OFFSET_RESET: Key(
        STRING,
        "latest",
        "Where a share group starts: latest, earliest, or by_duration: with a duration such as PT1H.",
        Validator(_check_reset, "latest, earliest, by_duration:PnDTnHnMn.nS"),
        CLUSTER_WIDE,
        name=SHARE_OFFSET_RESET,
    ),
    SHARE_DELIVERY_LIMIT: _share(
        SHARE_DELIVERY_LIMIT, 5, "The most deliveries of a record to the share group.", between(2, 10)
    ),
    SHARE_HEARTBEAT_INTERVAL: _share(
        SHARE_HEARTBEAT_INTERVAL, 5000, "The heartbeat interval of the share group's members.", at_least(1)
    ),
    SHARE_ISOLATION: Key(
        STRING,
        "read_uncommitted",
        "Whether the share group gets records of transactions that are open or aborted.",
        one_of("read_committed", "read_uncommitted"),
        CLUSTER_WIDE,
        name=SHARE_ISOLATION,
    ),
    SHARE_KEY_ORDERED: Key(
        BOOLEAN,
        False,
        "Whether a record of the share group waits until the earlier ones of its key are done with.",
        None,
        CLUSTER_WIDE,
        name=SHARE_KEY_ORDERED,
        note="Kafka has no such config.",
    ),
    SHARE_RECORD_LOCKS: _share(
        SHARE_RECORD_LOCKS,
        2000,
        "The most records of a partition that are in flight for the share group.",
        between(100, 10000),
    ),
    SHARE_LOCK_DURATION: _share(
        SHARE_LOCK_DURATION,
        30000,
        "How long a record is locked that the share group has acquired.",
        at_least(1000),
    ),
    SHARE_SESSION_TIMEOUT: _share(
        SHARE_SESSION_TIMEOUT, 45000, "The session timeout of the share group's members.", at_least(1)
    ),
}
"""By name. Their defaults are the broker's keys of the same names after ``group.``, where there are such keys."""


class ShareConfigs(NamedTuple):
    """What is in force for a share group; times in ms. ``reset``: ``latest``, ``earliest``, or so many ms ago."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    lock_ms: int
    most_deliveries: int
    most_locks: int
    reset: str | int
    read_committed: bool
    key_ordered: bool


def share_configs(config: BrokerConfig, settings: Mapping[str, str]) -> ShareConfigs:
    """The configs of a share group with these settings."""

    def number(name: str, default: int) -> int:
        own = settings.get(name)
        return default if own is None else int(own)

    reset = settings.get(SHARE_OFFSET_RESET, "latest")
    ago = duration_ms(reset)
    return ShareConfigs(
        number(SHARE_SESSION_TIMEOUT, config.group_share_session_timeout_ms),
        number(SHARE_HEARTBEAT_INTERVAL, config.group_share_heartbeat_interval_ms),
        number(SHARE_LOCK_DURATION, config.group_share_record_lock_duration_ms),
        number(SHARE_DELIVERY_LIMIT, config.group_share_delivery_count_limit),
        number(SHARE_RECORD_LOCKS, config.group_share_partition_max_record_locks),
        reset.lower() if ago is None else ago,
        settings.get(SHARE_ISOLATION, "read_uncommitted") == "read_committed",
        settings.get(SHARE_KEY_ORDERED, "false").strip().lower() == "true",
    )


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
    share = share_configs(config, settings)
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
        (
            SHARE_HEARTBEAT_INTERVAL,
            share.heartbeat_interval_ms,
            config.group_share_min_heartbeat_interval_ms,
            config.group_share_max_heartbeat_interval_ms,
        ),
        (
            SHARE_SESSION_TIMEOUT,
            share.session_timeout_ms,
            config.group_share_min_session_timeout_ms,
            config.group_share_max_session_timeout_ms,
        ),
        (
            SHARE_LOCK_DURATION,
            share.lock_ms,
            config.group_share_min_record_lock_duration_ms,
            config.group_share_max_record_lock_duration_ms,
        ),
    ):
        kind, _, what = name.partition(".")
        if value < least:
            reason = f"must be greater than or equal to group.{kind}.min.{what} ({least})"
            raise InvalidValue(name, value, reason)
        if value > most:
            reason = f"must be less than or equal to group.{kind}.max.{what} ({most})"
            raise InvalidValue(name, value, reason)
    for name, other, longer, shorter in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL, session, heartbeat),
        (
            SHARE_SESSION_TIMEOUT,
            SHARE_HEARTBEAT_INTERVAL,
            share.session_timeout_ms,
            share.heartbeat_interval_ms,
        ),
    ):
        if longer <= shorter:
            raise InvalidValue(name, longer, f"must be greater than {other} ({shorter})")
