"""Requests that a network holds back don't reach into the producer's next transaction, and a fenced instance doesn't.

Jepsen's report on Bufstream (2024) shows for Kafka's own protocol that a delayed EndTxn or Produce of a client without
KIP-890's second part takes effect in the next transaction of its producer. With ``--kafka=3`` these tests show that
Apache Kafka 3.9.1 has these faults. The same in a cluster, and with Java's clients: tests/cluster/test_late_frames.py,
tests/interop/test_late_frames.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.ports import free_port
from tests.support import late_scenarios as late_scenarios  # fills the table
from tests.support import late_scene as late
from tests.support.late_drivers import ConfluentDriver, MakeDriver, OttlaDriver, StepFailed
from tests.support.late_frames import LateFrames
from tests.support.processes import BrokerProcess

CLIENTS: dict[str, MakeDriver] = {"confluent": ConfluentDriver, "version-2": OttlaDriver}
CASES = [
    (name, client)
    for name, each in late.SCENARIOS.items()
    for client in CLIENTS
    if not each.in_cluster and client in (each.clients or CLIENTS)
]


@pytest.fixture(scope="module")
def place(
    _broker_class: Callable[..., BrokerProcess], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[late.OneBroker]:
    with LateFrames() as network:
        network.target = free_port()
        settings = {**late.SETTINGS, "advertised.listeners": f"PLAINTEXT://{network.address}"}
        broker = _broker_class(tmp_path_factory.mktemp("late") / "data", settings, port=network.target)
        broker.start()
        yield late.OneBroker(broker, network.holds, network.address)
        broker.kill()
        assert not broker.complaints()


@pytest.mark.not_kafka_4
@pytest.mark.parametrize(("name", "client"), CASES)
def test_late(name: str, client: str, place: late.OneBroker, is_kafka: bool) -> None:
    topic = f"{name}-{client}"
    if not is_kafka:
        late.play(name, place, CLIENTS[client], topic)
        return
    if client == "version-2":
        pytest.skip("Kafka 3.9 has no transactions of version 2")
    fails = late.SCENARIOS[name].kafka_fails
    if fails is None:
        pytest.skip("Kafka 3.9 fails in some runs")
    if not fails:
        late.play(name, place, CLIENTS[client], topic)
        return
    for attempt in range(3):
        try:
            late.play(name, place, CLIENTS[client], f"{topic}-{attempt}")
        except (StepFailed, AssertionError):
            return
    pytest.fail("Kafka 3.9 did it right three times")
