"""Keys of the group coordinator and of committed offsets."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from ottla_broker.config.model import (
    INT_MAX,
    LIST,
    SHORT,
    STRING,
    Key,
    Validator,
    at_least,
    between,
    integer,
    long,
)
from ottla_broker.config.server_keys import MOST_NEW_PARTITIONS

_ASSIGNORS: Final = (
    "org.apache.kafka.coordinator.group.assignor.UniformAssignor",
    "org.apache.kafka.coordinator.group.assignor.RangeAssignor",
)
TIMES: Final = ("heartbeat.interval", "session.timeout")
_POLICIES: Final = ("disabled", "upgrade", "downgrade", "bidirectional")


def _check_assignors(names: Sequence[str]) -> str | None:
    allowed = (*_ASSIGNORS, "uniform", "range")
    unknown = [name for name in names if name not in allowed]
    if unknown:
        return f"there is no assignor {unknown[0]}: {', '.join(allowed)}"
    return None if names else "at least one assignor must be named"


def _check_protocols(names: Sequence[str]) -> str | None:
    unknown = [name for name in names if name not in ("classic", "consumer")]
    if unknown:
        return f"there is no group protocol {unknown[0]}: classic, consumer"
    return None if "classic" in names else "classic can't be left out"


def _check_policy(name: str) -> str | None:
    return (
        None
        if name.lower() in _POLICIES
        else f"String must be one of (case insensitive): {', '.join(_POLICIES)}"
    )


class GroupKeys:
    """Groups, their offsets, and the topic that stores both."""

    group_min_session_timeout_ms = integer(
        6000, "The shortest session timeout that a group member may request."
    )
    group_max_session_timeout_ms = integer(
        1800000, "The longest session timeout that a group member may request."
    )
    group_initial_rebalance_delay_ms = integer(
        3000,
        "Time that an empty group waits for further members before its first rebalance.",
        note="Kafka waits for whole delays; Ottla for less if members come close together, at least a third.",
    )
    group_max_size = integer(INT_MAX, "The most members of a group.", at_least(1))
    group_coordinator_rebalance_protocols: Key[tuple[str, ...]] = Key(
        LIST,
        ("classic", "consumer"),
        "The group protocols that the broker serves.",
        Validator(_check_protocols, "classic, or classic,consumer"),
        note="Kafka's default is classic up to 3.9, and both from 4.0 on.",
    )
    group_consumer_assignors: Key[tuple[str, ...]] = Key(
        LIST,
        _ASSIGNORS,
        "Assignors for groups of the consumer protocol (KIP-848); the first is the default.",
        Validator(
            _check_assignors, "UniformAssignor and RangeAssignor by Kafka's class names, or uniform, range"
        ),
    )
    group_consumer_max_size = integer(
        INT_MAX, "The most members of a group of the consumer protocol.", at_least(1)
    )
    group_consumer_migration_policy: Key[str] = Key(
        STRING,
        "bidirectional",
        "Whether a classic group becomes one of the consumer protocol when a member of that protocol joins (upgrade),"
        " and the other way round when its last such member leaves (downgrade), while its members go on.",
        Validator(_check_policy, ", ".join(_POLICIES)),
        note="Kafka's default is disabled up to 3.9, and bidirectional from 4.0 on.",
    )
    group_consumer_session_timeout_ms = integer(
        45000, "The session timeout of members of the consumer protocol.", at_least(1)
    )
    group_consumer_min_session_timeout_ms = integer(
        45000, "The shortest session timeout that a group's own config may set.", at_least(1)
    )
    group_consumer_max_session_timeout_ms = integer(
        60000, "The longest session timeout that a group's own config may set.", at_least(1)
    )
    group_consumer_heartbeat_interval_ms = integer(
        5000,
        "The heartbeat interval of members of the consumer protocol.",
        at_least(1),
        note="Unless you set it, members get 2 s while there are at most 400 of them on a broker, so that they learn of"
        " new assignments sooner; with more of them it grows to the default.",
    )
    group_consumer_min_heartbeat_interval_ms = integer(
        5000, "The shortest heartbeat interval that a group's own config may set.", at_least(1)
    )
    group_consumer_max_heartbeat_interval_ms = integer(
        15000, "The longest heartbeat interval that a group's own config may set.", at_least(1)
    )
    offset_metadata_max_bytes = integer(4096, "The longest metadata text of a committed offset.")
    offsets_topic_replication_factor: Key[int] = Key(
        SHORT,
        3,
        "Replicas of the offsets topic.",
        at_least(1),
        note="A standalone broker makes one replica; a cluster makes the topic once so many brokers run.",
    )
    offsets_topic_num_partitions = integer(
        50, "Partitions of the offsets topic. Don't change this later.", between(1, MOST_NEW_PARTITIONS)
    )
    offsets_topic_segment_bytes = integer(104857600, "The segment size of the offsets topic.", at_least(1))
    offsets_topic_compression_codec = integer(
        0, "Compression of the offsets topic: 0 none, 1 gzip, 2 snappy, 3 lz4, 4 zstd.",
        Validator(lambda v: None if 0 <= v <= 4 else f"Unknown compression type id: {v}", "0 to 4"),
    )  # fmt: skip
    offsets_retention_minutes = integer(
        10080, "Time to keep the offsets of a group without members.", at_least(1)
    )
    offsets_retention_check_interval_ms = long(
        600000, "Time between two checks for expired offsets.", at_least(1)
    )
    offsets_commit_timeout_ms = integer(
        5000, "The longest wait of a commit for the replicas of the offsets topic.", at_least(1)
    )


def check_consumer_times(keys: GroupKeys) -> tuple[str, str] | None:
    """The key of the consumer protocol's times that contradicts another, and what is wrong, if there is one."""
    for what in TIMES:
        attribute = what.replace(".", "_")
        most = getattr(keys, f"group_consumer_max_{attribute}_ms")
        if getattr(keys, f"group_consumer_min_{attribute}_ms") > most:
            return (
                f"group.consumer.min.{what}.ms",
                f"must not be more than group.consumer.max.{what}.ms ({most})",
            )
    return check_times(keys, "consumer", TIMES)


def check_times(keys: object, kind: str, times: Sequence[str]) -> tuple[str, str] | None:
    """The first of these times that isn't between its limits, or a heartbeat interval as long as a session."""

    def value(name: str) -> int:
        found: int = getattr(keys, f"group_{kind}_{name.replace('.', '_')}_ms")
        return found

    for what in times:
        own, least, most = value(what), value(f"min.{what}"), value(f"max.{what}")
        if not least <= own <= most:
            return (
                f"group.{kind}.{what}.ms",
                f"is {own}, and must be between group.{kind}.min.{what}.ms ({least}) and"
                f" group.{kind}.max.{what}.ms ({most})",
            )
    heartbeat, session = TIMES
    if value(heartbeat) >= value(session):
        return (
            f"group.{kind}.{heartbeat}.ms",
            f"must be less than group.{kind}.{session}.ms ({value(session)})",
        )
    return None
