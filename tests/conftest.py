"""Fixtures of the tests that need a broker process.

``pytest tests/clients --kafka`` runs them against Apache Kafka 3.9.1, where Java and Maven are at hand:
what these tests say of a broker has to hold for Kafka as well.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess

# Waits that make tests slow, made short; nothing else differs from the defaults.
QUICK: dict[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "log.cleaner.backoff.ms": 200,
    "log.initial.task.delay.ms": 300,
    "log.retention.check.interval.ms": 300,
    "log.segment.delete.delay.ms": 500,
}

_numbers = itertools.count(1)


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--kafka", action="store_true", help="hold the tests of clients against Apache Kafka 3.9.1"
    )


@pytest.fixture(scope="session")
def is_kafka(request: pytest.FixtureRequest) -> bool:
    """Whether the broker is Apache Kafka."""
    return bool(request.config.getoption("--kafka"))


@pytest.fixture(scope="session")
def _broker_class(is_kafka: bool) -> Callable[..., BrokerProcess]:
    if is_kafka:
        from tests.support.kafka import KafkaProcess

        return KafkaProcess  # type: ignore[return-value]
    from tests.support.processes import BrokerProcess

    return BrokerProcess


@pytest.fixture(scope="session")
def _shared_broker(
    _broker_class: Callable[..., BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[BrokerProcess]:
    broker = _broker_class(tmp_path_factory.mktemp("shared") / "data", QUICK)
    broker.start()
    yield broker
    broker.kill()


@pytest.fixture
def broker(_shared_broker: BrokerProcess) -> Iterator[BrokerProcess]:
    """The broker that most tests share. A test that makes it log a failed request has found a defect."""
    yield _shared_broker
    assert not _shared_broker.complaints()


@pytest.fixture
def own_broker(
    _broker_class: Callable[..., BrokerProcess], tmp_path: Path
) -> Iterator[Callable[..., BrokerProcess]]:
    """Makes and starts brokers of the test's own; ``settings`` go on top of the quick ones."""
    made: list[BrokerProcess] = []

    def make(**options: Any) -> BrokerProcess:
        settings = {**QUICK, **options.pop("settings", {})}
        folder = options.pop("folder", tmp_path / f"broker-{len(made)}")
        broker = _broker_class(folder, settings, **options)
        made.append(broker)
        return broker.start()

    yield make
    complaints = []
    for broker in made:
        broker.kill()
        complaints += broker.complaints()
    assert not complaints


@pytest.fixture
def new_topic(broker: BrokerProcess) -> Callable[..., str]:
    """Makes a topic with a name of its own on the shared broker."""

    def make(partitions: int = 1, prefix: str = "t", **configs: object) -> str:
        from tests.support.topics import create_topic

        name = unique(prefix)
        create_topic(broker, name, partitions, **configs)
        return name

    return make


@pytest.fixture
def new_name() -> Callable[..., str]:
    """Names that no other test uses: ``new_name("group")``."""
    return unique


def unique(prefix: str) -> str:
    return f"{prefix}-{next(_numbers)}"
