"""Kafka 3.9.1's own checks of settings and Ottla's on the same ones: any difference is one of those named here."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path

import pytest
from harness.java import find_java
from tests.config.test_kafka_keys import KAFKA
from tests.interop.support import PROGRAMS, needed, run

from ottla_broker.config import BrokerConfig, ConfigError, InvalidValue
from ottla_broker.config.broker import all_keys
from ottla_broker.config.model import BOOLEAN, DOUBLE, INT, LIST, LONG, SHORT, UNSUPPORTED
from ottla_broker.config.topics import TOPIC_KEYS, check_topic_configs
from ottla_protocol.errors import KafkaError

Settings = tuple[str, dict[str, str]]
"""A scope, broker or topic, and what is set."""

FIXED = {"zookeeper.connect": "127.0.0.1:2181", "listeners": "PLAINTEXT://127.0.0.1:9092"}
COMBINATIONS = 6_000

_NUMBERS = (
    *(
        "-9223372036854775809",
        "-9223372036854775808",
        "-2147483649",
        "-2147483648",
        "-3",
        "-2",
        "-1",
        "0",
        "1",
    ),
    *("2", "3", "13", "14", "15", "100", "1023", "1024", "1025", "10000", "32766", "32767", "32768", "65535"),
    *("65536", "1000000", "104857600", "104857601", "2147483646", "2147483647", "2147483648"),
    *("9223372036854775807", "9223372036854775808", " 5 ", "+5", "1_000", "1.0", "0x10", "abc", ""),
)
_FRACTIONS = (
    *(
        "-1",
        "-0.1",
        "0",
        "0.0",
        "0.4",
        "0.5",
        "0.99",
        "1",
        "1.0",
        "1.1",
        "2",
        "100",
        "1e3",
        "NaN",
        "Infinity",
    ),
    *("-Infinity", "abc", "", ".5", "5.", "0.5f", "0x1p-1"),
)
_WORDS = (
    *("", "x", " ", "none", "NONE", "PLAINTEXT", "SSL", "plaintext", "required", "requested", "CreateTime"),
    *(
        "LogAppendTime",
        "createtime",
        "producer",
        "gzip",
        "uncompressed",
        "lz4",
        "snappy",
        "zstd",
        "0.11.0",
        "2.8",
    ),
    *(
        "3.9",
        "3.9-IV0",
        "4.0",
        "4.0-IV0",
        "delete",
        "compact",
        "TLSv1.2",
        "PEM",
        "PLAIN",
        "classic",
        "consumer",
    ),
    *("bidirectional", "upgrade", "disabled", "localhost:2181", "PLAINTEXT://127.0.0.1:1", "127.0.0.1:5"),
    *("PLAINTEXT://0.0.0.0:9092", "a b:5", "DEFAULT", "https"),
)
_LISTS = (*_WORDS, "delete,compact", "delete,delete", "delete,x", ",", "a,,b", "*", "0:1", "0:1,1:2", "0:x")
VALUES = {
    INT: _NUMBERS,
    SHORT: _NUMBERS,
    LONG: _NUMBERS,
    DOUBLE: _FRACTIONS,
    BOOLEAN: ("true", "false", "TRUE", "False", "yes", "1", "", " true "),
    LIST: _LISTS,
}
COMBINED = (
    *(
        "-1",
        "0",
        "1",
        "2",
        "10",
        "100",
        "101",
        "500",
        "1000",
        "1001",
        "5000",
        "6000",
        "30000",
        "45000",
        "60000",
    ),
    *("600000", "1800000", "1048576", "1048577", "2097152", "134217728", "2147483647"),
)

LOOSER = {
    "group.consumer.assignors": "names without their package, as in Kafka 4",
    "group.coordinator.rebalance.protocols": "the consumer protocol without KRaft",
    "group.share.max.size": "Kafka 4's range",
    "offsets.commit.required.acks": "compared with a factor that has no effect on it here",
}
"""What Kafka refuses, and why Ottla doesn't."""

STRICTER = {
    # What isn't there yet, or is read otherwise: the message says so.
    *(
        "authorizer.class.name",
        "listeners",
        "password.encoder.cipher.algorithm",
        "password.encoder.key.length",
    ),
    *("password.encoder.iterations", "password.encoder.keyfactory.algorithm", "replica.selector.class"),
    *("sasl.jaas.config", "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url"),
    *("ssl.enabled.protocols", "ssl.endpoint.identification.algorithm", "ssl.keystore.type"),
    *("ssl.principal.mapping.rules", "ssl.truststore.type", "zookeeper.connect", "zookeeper.set.acl"),
    *("zookeeper.ssl.endpoint.identification.algorithm", "zookeeper.ssl.keystore.type"),
    *("zookeeper.ssl.truststore.password", "zookeeper.ssl.truststore.type", "group.consumer.assignors"),
    # Kafka starts with these, and then something fails: topics aren't created, members can't join.
    *(
        "controlled.shutdown.max.retries",
        "controlled.shutdown.retry.backoff.ms",
        "default.replication.factor",
    ),
    *(
        "follower.replication.throttled.rate",
        "group.consumer.heartbeat.interval.ms",
        "group.max.session.timeout.ms",
    ),
    *(
        "group.min.session.timeout.ms",
        "leader.imbalance.per.broker.percentage",
        "leader.replication.throttled.rate",
    ),
    *("log.flush.interval.ms", "max.connections.per.ip.overrides", "num.replica.fetchers"),
    *(
        "replica.alter.log.dirs.io.max.bytes.per.second",
        "replica.fetch.min.bytes",
        "replica.fetch.wait.max.ms",
    ),
    *("sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.max.ms"),
    *("sasl.login.retry.backoff.ms", "sasl.oauthbearer.clock.skew.seconds"),
    *("sasl.oauthbearer.jwks.endpoint.refresh.ms", "sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms"),
    *("sasl.oauthbearer.jwks.endpoint.retry.backoff.ms", "zookeeper.session.timeout.ms"),
    # Numbers that no broker of this size can have.
    *("connection.failed.authentication.delay.ms", "num.partitions", "offsets.topic.num.partitions"),
    *(
        "sasl.server.max.receive.size",
        "transaction.state.log.num.partitions",
        "zookeeper.max.in.flight.requests",
    ),
}
"""What Kafka accepts and Ottla doesn't."""


@pytest.fixture(scope="module")
def classes(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), str(PROGRAMS / "Settings.java")])
    return folder


def kafkas(settings: list[Settings], classes: Path, libs: Path) -> list[str]:
    lines = ["\x1f".join([scope, *sum(given.items(), ())]) for scope, given in settings]
    command = [find_java(), "-Xmx512M", "-cp", f"{libs}/*:{classes}", "Settings"]
    done = subprocess.run(command, input="\n".join(lines).encode(), capture_output=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    answers = done.stdout.decode().splitlines()
    assert len(answers) == len(settings)
    return answers


def ottlas(scope: str, given: dict[str, str], broker: BrokerConfig) -> str:
    try:
        if scope == "topic":
            check_topic_configs(broker, given)
        else:
            BrokerConfig.from_properties({**FIXED, **given}, "start")
    except (ConfigError, InvalidValue, KafkaError) as error:
        return str(error)
    return "ok"


def differences(settings: list[Settings], classes: Path, libs: Path) -> list[tuple[Settings, str, str]]:
    broker = BrokerConfig.from_properties(FIXED)
    keys = {"broker": all_keys(), "topic": TOPIC_KEYS}
    found = []
    for (scope, given), kafka in zip(settings, kafkas(settings, classes, libs), strict=True):
        ottla = ottlas(scope, given, broker)
        if (ottla == "ok") == (kafka == "ok"):
            continue
        if ottla == "ok":
            known = any(name in LOOSER for name in given)
        else:
            known = any(name in ottla and keys[scope][name].effect == UNSUPPORTED for name in given) or any(
                f"{name}:" in ottla for name in STRICTER
            )
        if not known:
            found.append(((scope, given), ottla, kafka))
    return found


def test_each_key_accepts_what_it_accepts_in_kafka(classes: Path, java_libs: Path) -> None:
    settings: list[Settings] = [
        (scope, {name: value})
        for scope, keys in (("broker", all_keys()), ("topic", TOPIC_KEYS))
        for name, key in keys.items()
        if (scope, name) in KAFKA
        for value in VALUES.get(key.kind, _WORDS)
    ]
    assert differences(settings, classes, java_libs) == []


def test_keys_are_checked_against_each_other_as_in_kafka(classes: Path, java_libs: Path) -> None:
    chance = random.Random(39)
    names = [
        name
        for name, key in all_keys().items()
        if ("broker", name) in KAFKA
        and key.kind in (INT, SHORT, LONG, DOUBLE, BOOLEAN)
        and key.effect != UNSUPPORTED
        and name not in LOOSER
    ]
    settings: list[Settings] = []
    for _ in range(COMBINATIONS):
        given = {name: chance.choice(COMBINED) for name in chance.choices(names, k=chance.randint(2, 5))}
        settings.append(("broker", given))
    topic_names = [name for name, key in TOPIC_KEYS.items() if key.effect != UNSUPPORTED]
    for _ in range(COMBINATIONS):
        given = {
            name: chance.choice((*VALUES.get(TOPIC_KEYS[name].kind, _WORDS), *COMBINED))
            for name in chance.choices(topic_names, k=chance.randint(2, 5))
        }
        settings.append(("topic", given))
    assert differences(settings, classes, java_libs) == []
