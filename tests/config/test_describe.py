"""Sources and synonyms of configs, as in Kafka."""

from __future__ import annotations

from ottla_broker.config import BrokerConfig
from ottla_broker.config.describe import (
    DEFAULT_CONFIG,
    DYNAMIC_BROKER_CONFIG,
    DYNAMIC_DEFAULT_BROKER_CONFIG,
    STATIC_BROKER_CONFIG,
    TOPIC_CONFIG,
    ConfigEntry,
    describe_broker,
    describe_cluster_default,
    describe_topic,
)


def one(entries: list[ConfigEntry]) -> ConfigEntry:
    assert len(entries) == 1
    return entries[0]


def test_a_topics_config_has_all_its_sources() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "5"})
    config.apply_dynamic({"message.max.bytes": "6"}, {"message.max.bytes": "7"})
    entry = one(describe_topic(config, {"max.message.bytes": "8"}, ["max.message.bytes"]))
    assert (entry.value, entry.source, entry.read_only) == ("8", TOPIC_CONFIG, False)
    assert [tuple(synonym) for synonym in entry.synonyms] == [
        ("max.message.bytes", "8", TOPIC_CONFIG),
        ("message.max.bytes", "7", DYNAMIC_BROKER_CONFIG),
        ("message.max.bytes", "6", DYNAMIC_DEFAULT_BROKER_CONFIG),
        ("message.max.bytes", "5", STATIC_BROKER_CONFIG),
        ("message.max.bytes", "1048588", DEFAULT_CONFIG),
    ]
    entry = one(describe_topic(config, {}, ["max.message.bytes"]))
    assert (entry.value, entry.source) == ("7", DYNAMIC_BROKER_CONFIG)


def test_synonyms_begin_with_the_first_choice_as_in_kafka() -> None:
    config = BrokerConfig.from_properties({"log.retention.hours": "1"})
    entry = one(describe_topic(config, {}, ["retention.ms"]))
    assert (entry.value, entry.source, entry.synonyms) == ("3600000", DEFAULT_CONFIG, [])
    config = BrokerConfig.from_properties({"log.retention.hours": "1", "log.retention.ms": "9"})
    entry = one(describe_topic(config, {}, ["retention.ms"]))
    assert (entry.value, entry.source) == ("9", STATIC_BROKER_CONFIG)


def test_a_config_without_synonyms() -> None:
    entry = one(describe_topic(BrokerConfig.from_properties({}), {}, ["remote.storage.enable"]))
    assert (entry.value, entry.source, entry.synonyms) == ("false", DEFAULT_CONFIG, [])


def test_unknown_names_are_left_out() -> None:
    config = BrokerConfig.from_properties({})
    assert describe_topic(config, {}, ["no.such"]) == []
    assert describe_broker(config, ["no.such"]) == []


def test_all_configs_of_a_broker() -> None:
    config = BrokerConfig.from_properties({"num.io.threads": "9", "my.secret": "hidden"})
    entries = {entry.name: entry for entry in describe_broker(config)}
    assert len(entries) > 300
    assert entries["num.io.threads"].value == "9"
    assert entries["num.io.threads"].source == STATIC_BROKER_CONFIG
    assert entries["num.io.threads"].read_only
    assert not entries["message.max.bytes"].read_only
    assert entries["ssl.keystore.password"].sensitive
    assert entries["broker.id"].value == "1001"
    unknown = entries["my.secret"]
    assert (unknown.value, unknown.sensitive, unknown.source) == (None, True, STATIC_BROKER_CONFIG)
    assert "unstable.api.versions.enable" not in entries


def test_settings_that_kafka_has_only_at_runtime() -> None:
    """``DynamicConfig.Broker``: they are shown once they are made, and have no default."""
    name = "leader.replication.throttled.rate"
    config = BrokerConfig.from_properties({})
    assert describe_broker(config, [name]) == []
    config.apply_dynamic({name: "6"}, {name: "7"})
    entry = one(describe_broker(config, [name]))
    assert [synonym.value for synonym in entry.synonyms] == ["7", "6"]


def test_settings_for_all_brokers() -> None:
    config = BrokerConfig.from_properties({"message.max.bytes": "5"})
    assert describe_cluster_default(config) == []
    config.apply_dynamic({"message.max.bytes": "6"}, {"message.max.bytes": "7"})
    entry = one(describe_cluster_default(config))
    assert (entry.name, entry.value, entry.source) == (
        "message.max.bytes",
        "6",
        DYNAMIC_DEFAULT_BROKER_CONFIG,
    )
    assert [synonym.value for synonym in entry.synonyms] == ["6"]
    assert describe_cluster_default(config, ["log.retention.ms"]) == []
