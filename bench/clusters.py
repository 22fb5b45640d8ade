"""Three brokers of one kind on their own ZooKeeper, with Kafka's defaults except for folders and ports."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.admin._metadata import ClusterMetadata
from confluent_kafka.cimpl import NewTopic
from harness import maven
from harness.brokers import HOST, Broker, BrokerFailed, Kafka, KafkaOnZooKeeper
from harness.java import Unavailable, find_java
from harness.ports import free_port
from harness.zookeeper import ZooKeeper

BROKERS = 3


def _kafkas_zookeeper(folder: Path) -> ZooKeeper:
    """Start the ZooKeeper that comes with Kafka 3.9. Raises Unavailable without Java or Maven."""
    return ZooKeeper(
        folder / "zoo.cfg",
        folder / "data",
        folder / "out",
        free_port(),
        # ZooKeeper ends sessions at ticks, so with the usual 2 s they could last that much longer.
        tick_ms=500,
        settings={"maxSessionTimeout": 40_000},
        java=find_java(),
        classpath=f"{maven.kafka_jars()}/*",
    )


class Cluster:
    """A cluster with ``brokers`` by number. :func:`running` starts and ends it."""

    def __init__(self, kind: type[Broker], folder: Path) -> None:
        self.folder = folder
        self.zookeeper = _kafkas_zookeeper(folder / "zookeeper")
        of = KafkaOnZooKeeper if kind is Kafka else kind
        connect = {"zookeeper.connect": f"{HOST}:{self.zookeeper.port}"}
        self.brokers = {
            number: of(folder / f"{kind.name}-{number}", {**connect, "broker.id": str(number)})
            for number in range(1, BROKERS + 1)
        }

    @property
    def address(self) -> str:
        return ",".join(broker.address for broker in self.brokers.values())

    def start(self, timeout: float = 120.0) -> float:
        """Start all brokers. Returns the seconds until each of them knows all others and the controller."""
        began = time.perf_counter()
        for broker in self.brokers.values():
            broker.spawn()
        for broker in self.brokers.values():
            broker.wait_until_accepting(timeout)
            while not self._complete(broker):
                broker.check_alive()
                if time.perf_counter() > began + timeout:
                    raise BrokerFailed(f"{broker.name}'s cluster is not complete\n{broker.tail()}")
                time.sleep(0.01)
        return time.perf_counter() - began

    @staticmethod
    def _complete(broker: Broker) -> bool:
        admin = AdminClient({"bootstrap.servers": broker.address, "log_level": 0})
        with suppress(KafkaException):
            found = admin.list_topics(timeout=2)
            return len(found.brokers) == BROKERS and found.controller_id >= 0
        return False

    def metadata(self) -> ClusterMetadata:
        """Return the metadata from a running broker."""
        for broker in self.brokers.values():
            with suppress(KafkaException):
                return AdminClient({"bootstrap.servers": broker.address, "log_level": 0}).list_topics(
                    timeout=5
                )
        raise BrokerFailed("no broker of the cluster answers")

    def controller(self) -> int:
        found: int = self.metadata().controller_id
        return found

    def leaders(self, topic: str) -> dict[int, int]:
        """Return the leaders by partition."""
        return {number: each.leader for number, each in self.metadata().topics[topic].partitions.items()}

    def create(self, topic: str, partitions: int) -> None:
        """Create a topic with three replicas and min.insync.replicas=2, and wait until all are in sync."""
        new = NewTopic(topic, partitions, BROKERS, config={"min.insync.replicas": "2"})
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        admin.create_topics([new], operation_timeout=30)[topic].result(60)
        self.wait_in_sync(topic, partitions)

    def drop(self, topic: str) -> None:
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 0})
        admin.delete_topics([topic], operation_timeout=30)[topic].result(60)

    def wait_in_sync(
        self, topic: str, partitions: int, timeout: float = 120.0, replicas: int = BROKERS
    ) -> None:
        """Wait until all partitions have a leader, and as many replicas in sync."""
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            found = self.metadata().topics.get(topic)
            if (
                found is not None
                and len(found.partitions) == partitions
                and all(len(each.isrs) == replicas and each.leader >= 0 for each in found.partitions.values())
            ):
                return
            time.sleep(0.1)
        raise BrokerFailed(f"the replicas of {topic} were not in sync within {timeout:.0f} s")

    def freeze(self, number: int, frozen: bool) -> None:
        self.brokers[number].send_signal(signal.SIGSTOP if frozen else signal.SIGCONT)

    def remove(self) -> None:
        """End all processes and delete the folder."""
        for broker in self.brokers.values():
            broker.kill()
        self.zookeeper.kill()
        shutil.rmtree(self.folder, ignore_errors=True)


@contextmanager
def running(kind: type[Broker], folder: Path) -> Iterator[Cluster]:
    """Start a cluster's ZooKeeper, but not its brokers, for the block; then remove everything."""
    cluster = Cluster(kind, folder)
    try:
        try:
            cluster.zookeeper.start()
        except Unavailable as error:
            raise BrokerFailed(str(error)) from error
        yield cluster
    finally:
        cluster.remove()
