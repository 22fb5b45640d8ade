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

LATEST, EARLIEST = "latest", "earliest"

_DURATION: Final = re.compile(
    r"by_duration:(?i:P(?:(\d+)D)?(?:T(?=\d)(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?)"
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
    if text in (LATEST, EARLIEST) or duration_ms(text) is not None:
        return None
    return "must be latest, earliest, or by_duration: with an ISO 8601 duration such as PT1H"


def _own(
    kind: str, name: str, default: object, meaning: str, check: Validator | None = None, note: str = ""
) -> Key[Any]:
    return Key(kind, default, meaning, check, CLUSTER_WIDE, name=name, note=note)


_KEYS: Final = (
    _own(INT, HEARTBEAT_INTERVAL, 5000, "The heartbeat interval of the group's members.", at_least(1)),
    _own(INT, SESSION_TIMEOUT, 45000, "The session timeout of the group's members.", at_least(1)),
    _own(
        STRING,
        SHARE_OFFSET_RESET,
        "latest",
        "Where a share group starts: latest, earliest, or by_duration: with a duration such as PT1H.",
        Validator(_check_reset, "latest, earliest, by_duration:PnDTnHnMn.nS"),
    ),
    _own(INT, SHARE_DELIVERY_LIMIT, 5, "The most deliveries of a record to the share group.", between(2, 10)),
    _own(
        INT,
        SHARE_HEARTBEAT_INTERVAL,
        5000,
        "The heartbeat interval of the share group's members.",
        at_least(1),
    ),
    _own(
        STRING,
        SHARE_ISOLATION,
        "read_uncommitted",
        "Whether the share group gets records of transactions that are open or aborted.",
        one_of("read_committed", "read_uncommitted"),
    ),
    _own(
        BOOLEAN,
        SHARE_KEY_ORDERED,
        False,
        "Whether a record of the share group waits until the earlier ones of its key are done with.",
        note="Kafka has no such config.",
    ),
    _own(
        INT,
        SHARE_RECORD_LOCKS,
        2000,
        "The most records of a partition that are in flight for the share group.",
        between(100, 10000),
    ),
    _own(
        INT,
        SHARE_LOCK_DURATION,
        30000,
        "How long a record is locked that the share group has acquired.",
        at_least(1000),
    ),
    _own(INT, SHARE_SESSION_TIMEOUT, 45000, "The session timeout of the share group's members.", at_least(1)),
)
GROUP_KEYS: Final[Mapping[str, Key[Any]]] = {key.name: key for key in _KEYS}
"""By name. Their defaults are the broker's keys of the same names after ``group.``, where there are such keys."""


class ShareSettings(NamedTuple):
    """The settings in force for a share group; times in ms. The defaults are Kafka 4.2's."""

    lock_ms: int = 30_000
    most_deliveries: int = 5
    most_locks: int = 2_000
    offset_reset: str | int = LATEST
    """Where a group starts in a partition: ``latest``, ``earliest``, or a number of milliseconds ago."""
    read_committed: bool = False
    key_ordered: bool = False
    """Whether a record waits until the earlier ones of its key are done with."""
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5_000


def share_settings(config: BrokerConfig, settings: Mapping[str, str]) -> ShareSettings:
    """The settings of a share group that are in force, with its own ``settings``, which are checked."""

    def own(name: str, default: Any) -> Any:
        text = settings.get(name)
        return default if text is None else GROUP_KEYS[name].parse(text)

    reset = own(SHARE_OFFSET_RESET, LATEST)
    ago = duration_ms(reset)
    return ShareSettings(
        own(SHARE_LOCK_DURATION, config.group_share_record_lock_duration_ms),
        own(SHARE_DELIVERY_LIMIT, config.group_share_delivery_count_limit),
        own(SHARE_RECORD_LOCKS, config.group_share_partition_max_record_locks),
        reset if ago is None else ago,
        own(SHARE_ISOLATION, "read_uncommitted") == "read_committed",
        own(SHARE_KEY_ORDERED, False),
        own(SHARE_SESSION_TIMEOUT, config.group_share_session_timeout_ms),
        own(SHARE_HEARTBEAT_INTERVAL, config.group_share_heartbeat_interval_ms),
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
    share = share_settings(config, settings)
    times = {
        HEARTBEAT_INTERVAL: heartbeat,
        SESSION_TIMEOUT: session,
        SHARE_HEARTBEAT_INTERVAL: share.heartbeat_interval_ms,
        SHARE_SESSION_TIMEOUT: share.session_timeout_ms,
        SHARE_LOCK_DURATION: share.lock_ms,
    }
    for name, value in times.items():
        kind, _, what = name.partition(".")
        limits = f"group.{kind}.min.{what}", f"group.{kind}.max.{what}"
        least, most = map(config.get, limits)
        if value < least:
            raise InvalidValue(name, value, f"must be greater than or equal to {limits[0]} ({least})")
        if value > most:
            raise InvalidValue(name, value, f"must be less than or equal to {limits[1]} ({most})")
    for name, other in (
        (SESSION_TIMEOUT, HEARTBEAT_INTERVAL),
        (SHARE_SESSION_TIMEOUT, SHARE_HEARTBEAT_INTERVAL),
    ):
        if times[name] <= times[other]:
            raise InvalidValue(name, times[name], f"must be greater than {other} ({times[other]})")
