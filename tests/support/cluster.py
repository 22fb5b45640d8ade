"""A cluster on this machine: several brokers and ZooKeeper, each in its own process."""

from __future__ import annotations

import itertools
import signal
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_protocol.messages.describe_cluster import DescribeClusterRequest
from ottla_protocol.messages.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse

_VERSION = 12

# Shorter waits than the defaults.
QUICK: Mapping[str, object] = {
    "group.initial.rebalance.delay.ms": 0,
    "group.min.session.timeout.ms": 500,
    "zookeeper.session.timeout.ms": 3000,
    "replica.lag.time.max.ms": 3000,
    "replica.fetch.backoff.ms": 100,
    "log.segment.delete.delay.ms": 500,
    "controlled.shutdown.retry.backoff.ms": 300,
    "offsets.topic.num.partitions": 5,
}

_chroots = itertools.count()


class Cluster:
    """Brokers numbered from 1 on one ZooKeeper, under their own chroot."""

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeperProcess,
        brokers: int = 3,
        settings: Mapping[str, object] | None = None,
        racks: Iterable[str] = (),
        listeners: Callable[[int], Mapping[str, object]] | None = None,
    ) -> None:
        """``listeners`` makes settings of the client port; without it, that is the only listener."""
        self.zookeeper = zookeeper
        self.connect = f"{zookeeper.address}/cluster{next(_chroots)}"
        self.brokers: dict[int, BrokerProcess] = {}
        self.leftovers: list[Callable[[], object]] = []
        """Cleanups for processes that a test may leave behind."""
        self.frozen: set[int] = set()
        names = list(racks)
        for number in range(1, brokers + 1):
            own: dict[str, object] = {
                **QUICK,
                "zookeeper.connect": self.connect,
                "broker.id": number,
                **(settings or {}),
            }
            if names:
                own["broker.rack"] = names[(number - 1) % len(names)]
            broker = BrokerProcess(folder / f"broker-{number}", own)
            if listeners is not None:
                broker.settings = {**broker.settings, **listeners(broker.port)}
            self.brokers[number] = broker

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers.values())

    def start(self) -> Cluster:
        """Start all brokers, and wait until each knows all of them."""
        for broker in self.brokers.values():
            broker.start()
        self.wait_complete()
        return self

    def wait_complete(self, timeout: float = 60.0) -> None:
        """Wait until every running broker knows every running broker."""
        running = {number for number, broker in self.brokers.items() if broker.running}

        def complete() -> bool:
            return all(self.known_to(number) == running for number in running)

        wait_for(complete, f"brokers {sorted(running)} to know each other", timeout)

    def known_to(self, number: int) -> set[int]:
        """Return the brokers that one broker knows are alive. Metadata also names those that have just gone."""
        with Wire(self.brokers[number].port) as connection:
            answer = connection.call(DescribeClusterRequest(), 0)
            return {broker.broker_id for broker in answer.brokers}

    def metadata(self, number: int | None = None, topics: list[str] | None = None) -> MetadataResponse:
        """Return the metadata from a broker, by default any that can answer."""
        if number is None:
            number = next(n for n, b in self.brokers.items() if b.running and n not in self.frozen)
        wanted = None if topics is None else [MetadataRequestTopic(name=name) for name in topics]
        request = MetadataRequest(topics=wanted, allow_auto_topic_creation=False)
        with Wire(self.brokers[number].port) as connection:
            answer: MetadataResponse = connection.call(request, _VERSION)
            return answer

    def controller(self) -> int:
        """Return the controller, as soon as a running broker is."""

        def found() -> int:
            controller: int = self.metadata().controller_id
            return controller if controller in self.brokers and self.brokers[controller].running else 0

        return wait_for(found, "a controller")

    def leader(self, topic: str, partition: int = 0) -> int:
        """Return a partition's leader, as soon as a running broker is."""

        def found() -> int:
            answer = self.metadata(topics=[topic]).topics[0]
            for each in answer.partitions:
                if each.partition_index == partition:
                    leader: int = each.leader_id
                    return leader if leader in self.brokers and self.brokers[leader].running else 0
            return 0

        return wait_for(found, f"a leader of {topic}-{partition}")

    def isr(self, topic: str, partition: int = 0) -> set[int]:
        answer = self.metadata(topics=[topic]).topics[0]
        return next(set(each.isr_nodes) for each in answer.partitions if each.partition_index == partition)

    def wait_in_sync(self, topic: str, count: int, timeout: float = 60.0) -> None:
        """Wait until all partitions of a topic have ``count`` in-sync replicas."""

        def complete() -> bool:
            partitions = self.metadata(topics=[topic]).topics[0].partitions
            return bool(partitions) and all(len(each.isr_nodes) == count for each in partitions)

        wait_for(complete, f"{count} replicas of {topic} in sync", timeout)

    def freeze(self, number: int) -> None:
        self.frozen.add(number)
        self.brokers[number].send_signal(signal.SIGSTOP)

    def thaw(self, number: int) -> None:
        self.brokers[number].send_signal(signal.SIGCONT)
        self.frozen.discard(number)

    def thaw_all(self) -> None:
        """Thaw every frozen broker, also those that a failed test has left."""
        for number in list(self.frozen):
            if self.brokers[number].running:
                self.thaw(number)
        self.frozen.clear()

    def clear(self) -> None:
        """Run the cleanups."""
        while self.leftovers:
            self.leftovers.pop()()

    def kill(self) -> None:
        self.clear()
        for broker in self.brokers.values():
            if broker.running:
                broker.send_signal(signal.SIGCONT)
            broker.kill()

    def complaints(self) -> list[str]:
        """Return log lines that reveal a defect."""
        return [line for broker in self.brokers.values() for line in broker.complaints()]
