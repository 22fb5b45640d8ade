"""Topics with records, for readers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Protocol

import pytest

from ottla_client.sync import Admin, Producer
from ottla_pipeline.source.cluster_queries import ClusterQueries

if TYPE_CHECKING:
    from tests.support.processes import BrokerProcess


class Put(Protocol):
    """Sends records; the values say their number and partition."""

    def __call__(
        self, topic: str, count: int, partition: int = 0, *, size: int = 0, at: int | None = None
    ) -> None: ...


@pytest.fixture
def put(broker: BrokerProcess) -> Iterator[Put]:
    """Sends ``count`` records, acknowledged, with timestamps from ``at`` on, a second apart."""
    with Producer(bootstrap_servers=broker.bootstrap) as producer:

        def send(topic: str, count: int, partition: int = 0, *, size: int = 0, at: int | None = None) -> None:
            for number in range(count):
                value = f"{partition}:{number}".encode().ljust(size, b".")
                stamp = None if at is None else at + number * 1000
                producer.send(topic, value=value, partition=partition, timestamp_ms=stamp)
            producer.flush()

        yield send


@pytest.fixture
def admin(broker: BrokerProcess) -> Iterator[Admin]:
    """An admin of the shared broker."""
    with Admin(bootstrap_servers=broker.bootstrap) as client:
        yield client


@pytest.fixture
def asked(broker: BrokerProcess) -> Iterator[ClusterQueries]:
    """What the driver asks the shared broker with."""
    with ClusterQueries(broker.bootstrap) as made:
        yield made


@pytest.fixture
def options(broker: BrokerProcess) -> Callable[..., dict[str, str]]:
    """Options of a reader; two underscores stand for a dot: ``options(subscribe="t", kafka__group__id="g")``."""

    def make(**given: str) -> dict[str, str]:
        named = {name.replace("__", "."): value for name, value in given.items()}
        return {"kafka.bootstrap.servers": broker.bootstrap, **named}

    return make
