"""The declarations against Apache Kafka 3.9.1's own: names, types, defaults and update modes."""

from __future__ import annotations

import re
from pathlib import Path

from ottla_broker.config.broker import BrokerConfig, all_keys
from ottla_broker.config.group_configs import GROUP_KEYS
from ottla_broker.config.model import LIST, LONG, LONG_MAX, READ_ONLY, SUPPORTED, Key, format_value, keys_of
from ottla_broker.config.topics import SYNONYMS, TOPIC_KEYS

ROWS = [
    line.split("\t")
    for line in (Path(__file__).parent / "kafka-3.9.1-keys.tsv").read_text().splitlines()
    if not line.startswith("#")
]
KAFKA = {(row[0], row[1]): row[2:] for row in ROWS}

OUR_OWN_DEFAULTS = {
    "group.consumer.migration.policy",
    "group.coordinator.rebalance.protocols",
    "group.share.enable",
    "group.share.partition.max.record.locks",
    "listeners",
    "log.dir",
    "socket.listen.backlog.size",
    "zookeeper.session.timeout.ms",
    "sasl.server.max.receive.size",
}
AUTHORIZERS_KEYS = {"super.users", "allow.everyone.if.no.acl.found"}
"""Kafka's AclAuthorizer reads them itself."""
OUR_OWN_KEYS = {
    "allow.anonymous.network",
    "coordinator.advertised.listener",
    "coordinator.listener",
    "coordinator.max.consumers",
    "coordinator.max.failed.pings",
    "coordinator.min.session.timeout.ms",
    "coordinator.offset.commit.interval.ms",
    "coordinator.rebalance.backoff.ms",
    "coordinator.rebalance.max.retries",
    "coordinator.rebalance.threads",
    "max.delegation.tokens",
    "max.delegation.tokens.per.owner",
    "max.group.metadata.bytes",
    "max.groups",
    "max.pending.members",
    "max.producers",
    "max.producers.per.partition",
    "max.share.group.states",
    "max.transactional.ids",
    "metrics.listener",
    "metrics.max.series",
    "ottla.audit.log",
    "ottla.lag.history.enable",
    "ottla.lag.history.interval.ms",
    "ottla.lag.history.max.groups",
    "ottla.lag.history.num.partitions",
    "ottla.telemetry.max.series",
    "zookeeper.digest.user",
    "zookeeper.digest.password",
    "zookeeper.sasl.user",
    "zookeeper.sasl.password",
}
KAFKA_4_KEYS = {
    "group.share.max.share.sessions",
    "share.coordinator.snapshot.update.records.per.snapshot",
    "share.coordinator.state.topic.compression.codec",
    "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
    "share.coordinator.state.topic.prune.interval.ms",
    "share.coordinator.state.topic.replication.factor",
    "share.coordinator.state.topic.segment.bytes",
    "share.coordinator.write.timeout.ms",
}
"""Share groups have these since Kafka 4."""
DYNAMIC_ONLY = {
    "leader.replication.throttled.rate",
    "follower.replication.throttled.rate",
    "replica.alter.log.dirs.io.max.bytes.per.second",
}
"""Not among Kafka's static keys (``DynamicConfig.Broker``)."""


def text_of(key: Key[object]) -> str:
    text = format_value(key.kind, key.default)
    if key.kind == LIST and text is not None:
        return f"[{text.replace(',', ', ')}]"
    return "null" if text is None else text


def test_every_key_is_known_and_no_other() -> None:
    assert set(all_keys()) - OUR_OWN_KEYS - AUTHORIZERS_KEYS - DYNAMIC_ONLY - KAFKA_4_KEYS == {
        name for scope, name in KAFKA if scope == "broker"
    }
    assert set(TOPIC_KEYS) == {name for scope, name in KAFKA if scope == "topic"}


def test_types_and_defaults_are_kafkas() -> None:
    for scope, keys in (("broker", all_keys()), ("topic", TOPIC_KEYS)):
        for name, key in keys.items():
            if name in OUR_OWN_KEYS:
                assert key.note.startswith("Kafka has no such key"), name
                continue
            if name in AUTHORIZERS_KEYS | KAFKA_4_KEYS:
                continue
            if name in DYNAMIC_ONLY:
                assert (key.kind, key.default) == (LONG, LONG_MAX)
                continue
            kind, default, _ = KAFKA[scope, name]
            assert key.kind == kind, name
            if (scope, name) == ("broker", "listeners") or name in OUR_OWN_DEFAULTS:
                continue
            assert text_of(key) == default.removeprefix("class "), name


def test_own_defaults_are_documented() -> None:
    for name in OUR_OWN_DEFAULTS:
        assert "Kafka's default" in all_keys()[name].documentation


def test_update_modes_are_kafkas() -> None:
    for name, key in keys_of(BrokerConfig).items():
        if key.mode != READ_ONLY and name not in DYNAMIC_ONLY:
            assert KAFKA["broker", name][2] == key.mode, name


def test_every_key_has_a_meaning_and_without_effect_a_reason() -> None:
    for name, key in {**all_keys(), **TOPIC_KEYS}.items():
        assert key.meaning.endswith("."), name
        assert key.effect == SUPPORTED or key.note, name
        assert name == key.name


def test_defaults_are_valid() -> None:
    for key in (*all_keys().values(), *TOPIC_KEYS.values()):
        text = format_value(key.kind, key.default)
        if text is not None:
            assert key.parse(text) == key.default


def test_every_supported_key_is_used() -> None:
    """No key is accepted and then ignored: outside its declaration, its name or attribute is used."""
    package = Path(__file__).parents[2] / "broker" / "ottla_broker"
    declared = {
        "server_keys.py",
        "log_keys.py",
        "group_keys.py",
        "cluster_keys.py",
        "security_keys.py",
        "topics.py",
        "describe.py",
    }
    sources = "\n".join(
        path.read_text()
        for path in package.rglob("*.py")
        if not (path.parent.name == "config" and path.name in declared)
    )
    through_topics = {synonym.name for synonyms in SYNONYMS.values() for synonym in synonyms}
    # check_group_configs reads the limits of what groups may set by their names.
    parts = [name.partition(".") for name in GROUP_KEYS]
    through_groups = {f"group.{kind}.{end}.{what}" for kind, _, what in parts for end in ("min", "max")}
    unread = [
        key.name
        for key in keys_of(BrokerConfig).values()
        if key.effect == SUPPORTED
        and key.name not in through_topics | through_groups
        and re.search(rf"\.{key.attribute}\b", sources) is None
        and f'"{key.name}"' not in sources
    ]
    assert unread == []
