"""Topic configs in force, and invalid ones."""

from __future__ import annotations

import pytest

from ottla_broker.config import BrokerConfig, ConfigError, InvalidValue
from ottla_broker.config.message_formats import message_format
from ottla_broker.config.topics import TOPIC_KEYS, check_topic_configs, effective, log_config
from ottla_broker.log.config import LogConfig
from ottla_protocol.errors import ErrorCode, KafkaError

HOUR = 3_600_000


def config(settings: dict[str, str] | None = None) -> BrokerConfig:
    return BrokerConfig.from_properties(settings or {})


def test_a_topics_defaults_are_the_logs() -> None:
    assert log_config(config(), {}) == LogConfig()


@pytest.mark.parametrize(
    ("settings", "name", "value"),
    [
        ({"log.retention.hours": "2"}, "retention.ms", 2 * HOUR),
        ({"log.retention.hours": "2", "log.retention.minutes": "3"}, "retention.ms", 180_000),
        ({"log.retention.minutes": "3", "log.retention.ms": "4"}, "retention.ms", 4),
        ({"log.retention.hours": "-1"}, "retention.ms", -1),
        ({"log.retention.ms": "-2"}, "retention.ms", -1),
        ({"log.roll.hours": "2"}, "segment.ms", 2 * HOUR),
        ({"log.roll.hours": "2", "log.roll.ms": "5"}, "segment.ms", 5),
        ({"log.roll.jitter.hours": "1"}, "segment.jitter.ms", HOUR),
        ({"log.roll.jitter.hours": "1", "log.roll.jitter.ms": "0"}, "segment.jitter.ms", 0),
        ({"log.flush.scheduler.interval.ms": "7"}, "flush.ms", 7),
        ({"log.flush.scheduler.interval.ms": "7", "log.flush.interval.ms": "8"}, "flush.ms", 8),
        ({"log.flush.interval.messages": "1"}, "flush.messages", 1),
        ({"message.max.bytes": "9"}, "max.message.bytes", 9),
        ({"log.cleanup.policy": "compact"}, "cleanup.policy", ("compact",)),
    ],
)
def test_topics_default_to_the_brokers_keys(settings: dict[str, str], name: str, value: object) -> None:
    assert effective(config(settings), {})[name] == value


def test_a_topics_own_setting_overrides_the_brokers() -> None:
    made = log_config(
        config({"log.retention.ms": "5", "message.max.bytes": "9"}),
        {"retention.ms": "-1", "cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": "0.1"},
    )
    assert made.retention_ms == -1
    assert made.max_message_bytes == 9
    assert (made.compact, made.delete) == (True, True)
    assert made.min_cleanable_dirty_ratio == 0.1


def test_the_older_key_for_timestamps_is_a_default() -> None:
    both = config({"log.message.timestamp.difference.max.ms": "5"})
    for name in ("message.timestamp.before.max.ms", "message.timestamp.after.max.ms"):
        assert effective(both, {})[name] == 5, "as DescribeConfigs shows it"
        assert effective(both, {name: "7"})[name] == 7
    made = log_config(config(), {"message.timestamp.difference.max.ms": "5"})
    assert (made.message_timestamp_before_max_ms, made.message_timestamp_after_max_ms) == (5, 5)
    made = log_config(
        config({"log.message.timestamp.difference.max.ms": "5"}), {"message.timestamp.after.max.ms": "6"}
    )
    assert (made.message_timestamp_before_max_ms, made.message_timestamp_after_max_ms) == (5, 6)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "13"),
        ("segment.ms", "0"),
        ("cleanup.policy", "keep"),
        ("compression.type", "rar"),
        ("message.timestamp.type", "Now"),
        ("min.cleanable.dirty.ratio", "2"),
        ("min.insync.replicas", "0"),
        ("preallocate", "maybe"),
        ("max.message.bytes", "-1"),
        ("leader.replication.throttled.replicas", "0"),
        ("follower.replication.throttled.replicas", "x:1"),
    ],
)
def test_a_bad_value_has_kafkas_message(name: str, text: str) -> None:
    with pytest.raises(InvalidValue, match=rf"Invalid value {text}(\.0)? for configuration {name}: "):
        check_topic_configs(config(), {name: text})


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"no.such": "1"}, "Unknown topic config name: no.such"),
        ({"remote.storage.enable": "true"}, "Tiered storage is not built yet"),
        ({"local.retention.ms": "5"}, "Tiered storage is not built yet"),
        ({"min.compaction.lag.ms": "9", "max.compaction.lag.ms": "8"}, "must not be more than"),
    ],
)
def test_unsupported_and_contradictory_settings_are_refused(settings: dict[str, str], message: str) -> None:
    with pytest.raises(KafkaError, match=message) as caught:
        check_topic_configs(config(), settings)
    assert caught.value.code is ErrorCode.INVALID_CONFIG


@pytest.mark.parametrize(
    ("version", "format"),
    [
        ("0.8.0", 0),
        ("0.9.0.1", 0),
        ("0.10.0", 1),
        ("0.10.0-IV1", 1),
        ("0.10.2.2", 1),
        ("0.11.0-IV2", 2),
        ("1.0", 2),
        ("2.8.1", 2),
        ("3.9-IV0", 2),
        ("4.0-IV1", 2),
    ],
)
def test_versions_of_the_message_format(version: str, format: int) -> None:
    check_topic_configs(config(), {"message.format.version": version})
    assert message_format(version) == format
    assert effective(config(), {"message.format.version": version})["message.format.version"] == version
    given = config({"log.message.format.version": version})
    assert effective(given, {})["message.format.version"] == version
    assert given.warnings or format == 2


@pytest.mark.parametrize("version", ["0.8", "0.12.0", "2.9", "3.9-IV1", "latest", "", "4.0"])
def test_unknown_versions_of_the_message_format(version: str) -> None:
    with pytest.raises(InvalidValue, match="is not a valid version"):
        check_topic_configs(config(), {"message.format.version": version})
    with pytest.raises(ConfigError, match="is not a valid version"):
        config({"log.message.format.version": version})


def test_conversion_for_old_consumers() -> None:
    assert log_config(config(), {}).message_downconversion_enable
    assert not log_config(
        config({"log.message.downconversion.enable": "false"}), {}
    ).message_downconversion_enable
    assert not log_config(config(), {"message.downconversion.enable": "false"}).message_downconversion_enable


def test_an_unsupported_config_accepts_its_default() -> None:
    check_topic_configs(
        config(),
        {
            "remote.storage.enable": "false",
            "follower.replication.throttled.replicas": "",
            "leader.replication.throttled.replicas": "0:1, 12:3",
            "unclean.leader.election.enable": "false",
        },
    )


def test_every_config_of_the_log_comes_from_a_topics() -> None:
    fields = {name.replace(".", "_") for name in TOPIC_KEYS} | {"compact", "delete"}
    assert set(LogConfig.__slots__) <= fields


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0.5f", 0.5),
        ("0.5d", 0.5),
        ("0x1p-1", 0.5),
        ("0X.8P0F", 0.5),
        (".5", 0.5),
        ("1.", 1.0),
        ("+5e-1D", 0.5),
        (" 0.5 ", 0.5),
    ],
)
def test_a_double_is_what_java_reads(text: str, value: float) -> None:
    name = "min.cleanable.dirty.ratio"
    assert effective(config(), {name: text})[name] == value


@pytest.mark.parametrize(
    "text", ["nan", "inf", "infinity", "1_0", "0x1", "0.5l", "", ".", "e5", "0x.p1", "\uff11"]
)
def test_a_double_is_not_what_python_alone_reads(text: str) -> None:
    with pytest.raises(InvalidValue, match="Not a number of type DOUBLE"):
        check_topic_configs(config(), {"min.cleanable.dirty.ratio": text})


@pytest.mark.parametrize(
    ("level", "valid"), [(-2, False), (-1, True), (0, False), (1, True), (9, True), (10, False)]
)
def test_levels_of_gzip(level: int, valid: bool) -> None:
    settings = {"compression.gzip.level": str(level)}
    if valid:
        assert check_topic_configs(config(), settings).compression_gzip_level == level
    else:
        with pytest.raises(InvalidValue, match="Value must be between 1 and 9 or equal to -1"):
            check_topic_configs(config(), settings)
