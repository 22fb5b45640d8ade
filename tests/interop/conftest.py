"""One broker for the session, Kafka's tools, and a topic a test.

``OTTLA_INTEROP_BROKER=kafka`` runs the same tests against Apache Kafka 3.9.1: that is how their expectations
were made, and how to see whether a failure is the broker's or the test's.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import maven, wire
from harness.brokers import HOST, Broker, Kafka, Ottla
from harness.java import Unavailable
from tests.interop.secured import Secured
from tests.interop.support import Java
from tests.support.certificates import Certificates
from tests.support.oauth import Provider

_KINDS: dict[str, type[Ottla] | type[Kafka]] = {"ottla": Ottla, "kafka": Kafka}
KIND = _KINDS[os.environ.get("OTTLA_INTEROP_BROKER", "ottla")]
SETTINGS = {
    "auto.create.topics.enable": "false",
    "group.consumer.heartbeat.interval.ms": "500",
    "group.consumer.min.heartbeat.interval.ms": "100",
    "group.initial.rebalance.delay.ms": "0",
    "group.share.heartbeat.interval.ms": "500",
    "group.share.min.heartbeat.interval.ms": "100",
    # A topic that appears after a minute would be in the way of tests that count topics.
    "ottla.lag.history.enable": "false",
}

MakeTopic = Callable[..., str]
_numbers = itertools.count(1)


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    here = Path(__file__).parent
    for item in items:
        if here in item.path.parents:
            item.add_marker(pytest.mark.interop)


@pytest.fixture(scope="session")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Broker]:
    running = KIND(tmp_path_factory.mktemp("broker"), SETTINGS)
    running.start()
    yield running
    running.remove()


@pytest.fixture
def new_topic(broker: Broker, request: pytest.FixtureRequest) -> MakeTopic:
    """Make topics of this test's own: ``new_topic(partitions=1, **configs with _ for .)``."""

    def make(partitions: int = 1, **configs: str) -> str:
        name = f"{request.node.originalname.removeprefix('test_').replace('_', '-')}-{next(_numbers)}"
        connection = wire.Connection(HOST, broker.port)
        connection.create(name, partitions, {key.replace("_", "."): value for key, value in configs.items()})
        connection.close()
        return name

    return make


def jars_of(version: str) -> Path:
    """The jars of a version of Kafka; skips the test where they are not to be had."""
    names = {"2.8.2": ["kafka_2.13"]}.get(version, ["kafka_2.13", "kafka-tools"])
    try:
        return maven.jars(f"kafka-{version}", [f"org.apache.kafka:{name}:{version}" for name in names])
    except Unavailable as lack:
        pytest.skip(str(lack))


def java_tools(address: str, version: str, folder: Path) -> Java:
    """The tools of a version of Kafka against a broker; they start faster from the second time on."""
    libs = jars_of(version)
    log4j = folder / "log4j.properties"
    log4j.write_text("log4j.rootLogger=OFF\n")
    tools = Java(address, version, libs, log4j)
    tools.archive_classes()
    return tools


@pytest.fixture(scope="session")
def java_libs() -> Path:
    """The jars of Kafka 3.9.1."""
    return jars_of(maven.KAFKA_VERSION)


@pytest.fixture
def java(broker: Broker, tmp_path: Path) -> Java:
    """Kafka 3.9.1's tools."""
    return java_tools(broker.address, maven.KAFKA_VERSION, tmp_path)


@pytest.fixture(params=["2.8.2", "4.2.0"])
def other_java(request: pytest.FixtureRequest, broker: Broker, tmp_path: Path) -> Java:
    """The tools of an older and of a newer Kafka."""
    return java_tools(broker.address, request.param, tmp_path)


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    """A broker that asks for logins; always Ottla."""
    provider = Provider()
    certificates = Certificates(tmp_path_factory.mktemp("certificates"))
    with provider.serving():
        made = Secured(tmp_path_factory.mktemp("secured"), certificates, provider)
        with made.broker:
            made.add_users()
            yield made
            assert made.broker.complaints() == []
