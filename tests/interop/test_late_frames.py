"""Java's producer when a network holds its requests back.

tests/clients/test_late_frames.py and tests/cluster/test_late_frames.py with another client.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from harness import maven
from harness.ports import free_port
from tests.interop.conftest import KIND, java_tools
from tests.interop.stepped_producer import JavaDriver
from tests.interop.support import PROGRAMS, Java, needed, run
from tests.support import late_scenarios as late
from tests.support.late_cluster import LateCluster, MovingNetwork
from tests.support.late_frames import LateFrames
from tests.support.zookeeper import ZooKeeperProcess

IS_KAFKA = KIND.__name__ == "Kafka"


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory, java_libs: Path) -> Path:
    folder = tmp_path_factory.mktemp("classes")
    source = PROGRAMS / "TransactionalProducer.java"
    run([needed("javac"), "-cp", f"{java_libs}/*", "-d", str(folder), str(source)])
    return folder


@pytest.fixture
def network() -> Iterator[LateFrames]:
    with LateFrames() as network:
        yield network


@pytest.fixture
def address(tmp_path: Path, network: LateFrames) -> Iterator[str]:
    """The broker's own address, without the network that delays."""
    network.target = free_port()
    settings = {key: str(value) for key, value in late.SETTINGS.items()}
    settings["advertised.listeners"] = f"PLAINTEXT://{network.address}"
    broker = KIND(tmp_path / "broker", settings, network.target)
    broker.start()
    late.make_topic(broker)
    yield broker.address
    broker.remove()


@pytest.fixture(params=[maven.KAFKA_VERSION, maven.KAFKA_4_VERSION])
def producer(
    address: str, compiled: Path, network: LateFrames, tmp_path: Path, request: pytest.FixtureRequest
) -> Iterator[late.Driver]:
    """Kafka 4's uses transaction version 2 with Ottla."""
    if IS_KAFKA and request.param != maven.KAFKA_VERSION:
        pytest.skip("the same as with the older one")
    java = java_tools(address, request.param, tmp_path)
    driver = JavaDriver(
        java.command("TransactionalProducer", network.address, "late", late.TOPIC, classes=compiled)
    )
    yield driver
    driver.close()


CASES: list[tuple[Callable[[late.Driver, late.Network], None], list[str]]] = [
    (late.late_commit, ["a", "c"]),
    (late.late_abort, ["b", "c"]),
    (late.late_records, ["b"]),
]


@pytest.mark.parametrize(("case", "right"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_late(
    case: Callable[[late.Driver, late.Network], None],
    right: list[str],
    producer: late.Driver,
    network: LateFrames,
    address: str,
) -> None:
    if not IS_KAFKA:
        case(producer, network)
        assert late.read_committed(address) == right
        return
    try:
        case(producer, network)
    except late.StepFailed:
        return
    assert late.read_committed(address) != right


def test_late_offsets(producer: late.Driver, network: LateFrames, address: str) -> None:
    late.late_offsets(producer, network)
    assert late.committed_offset(address) == (1 if IS_KAFKA else 2)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateCluster]:
    if IS_KAFKA:
        pytest.skip("the cluster is of Ottla's brokers")
    folder = tmp_path_factory.mktemp("late")
    zookeeper = ZooKeeperProcess(folder / "zookeeper")
    made = LateCluster(folder, zookeeper.start())
    try:
        made.start()
        yield made
        assert not made.cluster.complaints()
    finally:
        made.close()
        zookeeper.kill()


@pytest.mark.parametrize(("case", "right"), CASES, ids=[case.__name__ for case, _ in CASES])
def test_late_after_a_move(
    case: Callable[[late.Driver, late.Network], None],
    right: list[str],
    cluster: LateCluster,
    java: Java,
    compiled: Path,
) -> None:
    topic = case.__name__
    cluster.create(topic)
    driver = JavaDriver(
        java.command("TransactionalProducer", cluster.address, topic, topic, classes=compiled)
    )
    try:
        case(driver, MovingNetwork(cluster))
    finally:
        driver.close()
    assert late.read_committed(cluster.cluster.bootstrap, topic) == right


def test_late_offsets_after_a_move(cluster: LateCluster, java: Java, compiled: Path) -> None:
    topic = "late_offsets"
    cluster.create(topic)
    driver = JavaDriver(
        java.command("TransactionalProducer", cluster.address, topic, topic, classes=compiled)
    )
    try:
        late.late_offsets(driver, MovingNetwork(cluster))
    finally:
        driver.close()
    assert late.committed_offset(cluster.cluster.bootstrap, topic) == 2
