"""A request that a network holds back doesn't reach into the producer's next transaction.

Jepsen's report on Bufstream (2024) shows for Kafka's own protocol that a delayed EndTxn or Produce of a client without
KIP-890's second part takes effect in the next transaction of its producer. With ``--kafka=3`` these tests show that
Apache Kafka 3.9.1 has the fault. The same with Java's client: tests/interop/test_late_frames.py.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness.ports import free_port
from tests.support import late_scenarios as late
from tests.support.late_frames import LateFrames
from tests.support.processes import BrokerProcess


@pytest.fixture(scope="module")
def network() -> Iterator[LateFrames]:
    with LateFrames() as network:
        yield network


@pytest.fixture(scope="module")
def late_broker(
    _broker_class: Callable[..., BrokerProcess],
    tmp_path_factory: pytest.TempPathFactory,
    network: LateFrames,
) -> Iterator[BrokerProcess]:
    """Its own address is that without the network that delays."""
    network.target = free_port()
    settings = {**late.SETTINGS, "advertised.listeners": f"PLAINTEXT://{network.address}"}
    broker = _broker_class(tmp_path_factory.mktemp("late") / "data", settings, port=network.target).start()
    yield broker
    broker.kill()
    assert not broker.complaints()


@pytest.fixture
def topic(late_broker: BrokerProcess, request: pytest.FixtureRequest) -> str:
    name: str = request.node.name.replace("[", "-").rstrip("]")
    late.make_topic(late_broker, name)
    return name


@pytest.fixture
def address(late_broker: BrokerProcess) -> str:
    return late_broker.bootstrap


@pytest.fixture(params=[late.ConfluentDriver, late.OttlaDriver], ids=["librdkafka", "version-2"])
def producer(
    topic: str, network: LateFrames, is_kafka: bool, request: pytest.FixtureRequest
) -> Iterator[late.Driver]:
    if is_kafka and request.param is late.OttlaDriver:
        pytest.skip("Kafka 3.9 has no transactions of version 2")
    driver = request.param(network.address, topic)
    yield driver
    driver.close()


@pytest.mark.not_kafka_4
def test_a_commit(
    producer: late.Driver, network: LateFrames, address: str, topic: str, is_kafka: bool
) -> None:
    if is_kafka:
        # The late commit of the first transaction commits the second as well.
        with pytest.raises(late.StepFailed):
            late.late_commit(producer, network)
        assert late.read_committed(address, topic) == ["a", "b"]
        return
    late.late_commit(producer, network)
    assert late.read_committed(address, topic) == ["a", "c"]


@pytest.mark.not_kafka_4
def test_an_abort(
    producer: late.Driver, network: LateFrames, address: str, topic: str, is_kafka: bool
) -> None:
    if is_kafka:
        # The late abort of the first transaction tears the second.
        with pytest.raises(late.StepFailed):
            late.late_abort(producer, network)
        assert late.read_committed(address, topic) != ["b", "c"]
        return
    late.late_abort(producer, network)
    assert late.read_committed(address, topic) == ["b", "c"]


@pytest.mark.not_kafka_4
def test_records(
    producer: late.Driver, network: LateFrames, address: str, topic: str, is_kafka: bool
) -> None:
    late.late_records(producer, network)
    # On Kafka the aborted record takes the place of the committed one, which is acknowledged as its duplicate.
    assert late.read_committed(address, topic) == (["a"] if is_kafka else ["b"])


@pytest.mark.not_kafka_4
def test_offsets(
    producer: late.Driver, network: LateFrames, address: str, topic: str, is_kafka: bool
) -> None:
    late.late_offsets(producer, network)
    # On Kafka the late offset replaces the newer one.
    assert late.committed_offset(address, topic) == (1 if is_kafka else 2)
