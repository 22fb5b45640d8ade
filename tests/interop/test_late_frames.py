"""Java's producers when a network holds their requests back, and when they are fenced.

tests/clients/test_late_frames.py and tests/cluster/test_late_frames.py with other clients. On one broker that of Kafka
4 has transactions of version 2, in the cluster of version 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from harness import maven
from harness.java import QUICK, Unavailable, find_java
from harness.ports import free_port
from tests.interop.conftest import KIND
from tests.interop.support import PROGRAMS, needed, run
from tests.support import late_scenarios as late_scenarios  # fills the table
from tests.support import late_scene as late
from tests.support.kafka import KafkaProcess
from tests.support.late_cluster import CASES, QUICKEST, LateCluster, play
from tests.support.late_drivers import JavaProducers
from tests.support.late_frames import LateFrames
from tests.support.processes import BrokerProcess
from tests.support.zookeeper import ZooKeeperProcess

IS_KAFKA = KIND.__name__ == "Kafka"
VERSIONS = [maven.KAFKA_VERSION, maven.NEWEST_CLIENTS]
NAMES = [name for name, each in late.SCENARIOS.items() if not each.clients]


@pytest.fixture(scope="module", params=VERSIONS)
def producers(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[JavaProducers]:
    """Those of one version."""
    try:
        libs = maven.client_jars(request.param)
    except Unavailable as lack:
        pytest.skip(str(lack))
    folder = tmp_path_factory.mktemp("classes")
    run(
        [needed("javac"), "-cp", f"{libs}/*", "-d", str(folder), str(PROGRAMS / "TransactionalProducer.java")]
    )
    made = JavaProducers(
        [find_java(), "-Xmx256M", *QUICK, "-cp", f"{libs}/*:{folder}", "TransactionalProducer"]
    )
    yield made
    made.close()


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[late.OneBroker]:
    with LateFrames() as network:
        network.target = free_port()
        settings = {**late.SETTINGS, "advertised.listeners": f"PLAINTEXT://{network.address}"}
        kind = KafkaProcess if IS_KAFKA else BrokerProcess
        broker = kind(tmp_path_factory.mktemp("late") / "data", settings, port=network.target)
        broker.start()
        yield late.OneBroker(broker, network.holds, network.address)  # type: ignore[arg-type]
        broker.kill()
        assert not broker.complaints()


@pytest.mark.skipif(IS_KAFKA, reason="tests/clients/test_late_frames.py shows what Kafka does")
@pytest.mark.parametrize("name", [name for name in NAMES if not late.SCENARIOS[name].in_cluster])
def test_late(
    name: str, place: late.OneBroker, producers: JavaProducers, new_name: Callable[[str], str]
) -> None:
    late.play(name, place, producers.make, new_name(name))


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LateCluster]:
    folder = tmp_path_factory.mktemp("late")
    zookeeper = ZooKeeperProcess(folder / "zookeeper").start()
    try:
        with LateCluster(folder, zookeeper) as made:
            yield made
    finally:
        zookeeper.kill()


@pytest.mark.skipif(IS_KAFKA, reason="the cluster is of Ottla's brokers")
@pytest.mark.parametrize(
    ("producers", "name", "move"),
    [
        (version, *case)
        for version in VERSIONS
        for case in CASES
        if case[0] in NAMES and (case in QUICKEST or version == maven.KAFKA_VERSION)
    ],
    indirect=["producers"],
)
def test_late_in_a_cluster(
    name: str, move: str, cluster: LateCluster, producers: JavaProducers, new_name: Callable[[str], str]
) -> None:
    play(name, move, cluster, producers.make, new_name(f"{name}-{move}"))
