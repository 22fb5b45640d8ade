"""Clusters of Ottla's and Kafka's brokers on one ZooKeeper."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from tests.support.cluster import QUICK, Cluster
from tests.support.kafka import KafkaMember
from tests.support.processes import BrokerProcess
from tests.support.waiting import wait_for
from tests.support.wire import Wire
from tests.support.zookeeper import ZooKeeperProcess

from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from ottla_protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from ottla_protocol.messages.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)

KINDS: Mapping[str, type[BrokerProcess]] = {"ottla": BrokerProcess, "kafka": KafkaMember}
STATE = "/brokers/topics/{}/partitions/{}/state"


class MixedCluster(Cluster):
    """Brokers numbered from 1, each of its own kind; ``brokers`` holds those that there are or were."""

    def __init__(
        self,
        folder: Path,
        zookeeper: ZooKeeperProcess,
        kinds: Iterable[str] = ("kafka", "kafka", "ottla"),
        settings: Mapping[str, object] | None = None,
    ) -> None:
        super().__init__(folder, zookeeper, brokers=0)
        self._folder = folder
        self._settings = {
            "offsets.topic.replication.factor": 3,
            # A JVM on a busy machine says nothing for seconds.
            "zookeeper.session.timeout.ms": 6000,
            "replica.lag.time.max.ms": 6000,
            **(settings or {}),
        }
        self.kinds: dict[int, str] = {}
        self._zk: KazooClient | None = None
        for number, kind in enumerate(kinds, 1):
            self.add(number, kind)

    def add(self, number: int, kind: str, folder: Path | None = None, port: int | None = None) -> None:
        """Have another broker, which isn't started; ``folder`` is its data folder."""
        settings = {
            **QUICK,
            "zookeeper.connect": self.connect,
            "broker.id": number,
            **self._settings,
        }
        self.kinds[number] = kind
        self.brokers[number] = KINDS[kind](folder or self._folder / f"{kind}-{number}", settings, port)

    def start(self) -> MixedCluster:
        """Start all; Kafka's, which take their time, at once."""
        begun: list[Any] = [self.brokers[number] for number in self.of_kind("kafka")]
        for broker in begun:
            broker.spawn()
        for number in self.of_kind("ottla"):
            self.brokers[number].start()
        for broker in begun:
            broker.wait_started()
        self.wait_complete()
        return self

    def of_kind(self, kind: str) -> list[int]:
        return [number for number, found in self.kinds.items() if found == kind]

    # ---- ZooKeeper

    @property
    def zk(self) -> KazooClient:
        """A client of the test's own, below the cluster's chroot."""
        if self._zk is None:
            self._zk = KazooClient(self.connect)
            self._zk.start(timeout=60)
        return self._zk

    def node(self, path: str) -> dict[str, Any] | None:
        """What a node holds, if it is there."""
        try:
            data, _ = self.zk.get(path)
        except NoNodeError:
            return None
        found: dict[str, Any] = json.loads(data)
        return found

    def state(self, topic: str, partition: int = 0) -> dict[str, Any]:
        """Who leads, since which epoch, who is in sync: as ZooKeeper has it."""
        return self.node(STATE.format(topic, partition)) or {}

    def wait_isr(self, topic: str, brokers: set[int], partition: int = 0, timeout: float = 120.0) -> None:
        """Wait until these are in sync, in ZooKeeper and in every running broker's metadata."""

        def there() -> bool:
            if set(self.state(topic, partition).get("isr", ())) != brokers:
                return False
            for number, broker in self.brokers.items():
                if broker.running:
                    reported = self.metadata(number, [topic]).topics[0].partitions
                    if [set(p.isr_nodes) for p in reported if p.partition_index == partition] != [brokers]:
                        return False
            return True

        wait_for(there, f"{brokers} in sync of {topic}-{partition}; {self.state(topic, partition)}", timeout)

    def controller(self) -> int:
        """The controller that all running brokers know."""

        def agreed() -> int:
            known = {
                self.metadata(number).controller_id
                for number, broker in self.brokers.items()
                if broker.running
            }
            elected: int | None = (self.node("/controller") or {}).get("brokerid")
            if elected is None or known != {elected}:
                return 0
            return elected if elected in self.brokers and self.brokers[elected].running else 0

        return wait_for(agreed, "a controller that all know", 120)

    def move_controller(self, accept: Callable[[int], bool]) -> int:
        """Have another broker elected until one is right: the node goes, as an operator would have it."""

        def elected() -> int:
            found = self.controller()
            if accept(found):
                return found
            epoch = self.zk.get("/controller_epoch")[0]
            self.zk.delete("/controller")
            wait_for(lambda: self.zk.get("/controller_epoch")[0] != epoch, "another election")
            return 0

        return wait_for(elected, "the right controller", 180)

    # ---- what the controller is asked

    def _ask_controller(self, request: Any, version: int, right: Callable[[Any], bool]) -> Any:
        """Ask the controller, and the next one if it has moved."""

        def answered() -> Any:
            with Wire(self.brokers[self.controller()].port, 60) as connection:
                answer = connection.call(request, version)
            return None if answer.error_code == ErrorCode.NOT_CONTROLLER or not right(answer) else answer

        return wait_for(answered, f"the controller to do {request}", 120)

    def reassign(self, topic: str, replicas: Sequence[int], partition: int = 0) -> None:
        """Move a partition, and wait until it has moved."""
        asked = ReassignablePartition(partition_index=partition, replicas=list(replicas))
        request = AlterPartitionReassignmentsRequest(
            topics=[ReassignableTopic(name=topic, partitions=[asked])]
        )
        answer = self._ask_controller(request, 0, lambda _: True)
        for each in answer.responses[0].partitions:
            assert not each.error_code, each

        def moved() -> bool:
            node = self.node(f"/brokers/topics/{topic}")
            assert node is not None
            moving = {**node["adding_replicas"], **node["removing_replicas"]}
            return not moving and node["partitions"][str(partition)] == list(replicas)

        wait_for(moved, f"{topic}-{partition} to move to {replicas}", 120)

    def lead(self, broker: int, topic: str, partition: int = 0) -> None:
        """Have a broker lead a partition: the first of its replicas, by a preferred election."""
        node = self.node(f"/brokers/topics/{topic}")
        assert node is not None
        others = [each for each in node["partitions"][str(partition)] if each != broker]
        self.reassign(topic, [broker, *others], partition)
        request = ElectLeadersRequest(
            topic_partitions=[TopicPartitions(topic=topic, partitions=[partition])], timeout_ms=20000
        )

        def right(answer: Any) -> bool:
            code = answer.replica_election_results[0].partition_result[0].error_code
            # The new leader may not be in sync yet.
            return code in (ErrorCode.NONE, ErrorCode.ELECTION_NOT_NEEDED)

        self._ask_controller(request, 2, right)
        wait_for(
            lambda: all(
                self.reported(number, topic, partition).leader_id == broker
                for number, each in self.brokers.items()
                if each.running
            ),
            f"{broker} to lead {topic}-{partition}",
        )

    def end_of_epoch(self, leader: int, topic: str, epoch: int, partition: int = 0) -> tuple[int, int]:
        """What a leader tells followers of an epoch: the last one up to it that has records, and where that ends."""
        asked = OffsetForLeaderPartition(
            partition=partition,
            current_leader_epoch=self.state(topic, partition)["leader_epoch"],
            leader_epoch=epoch,
        )
        request = OffsetForLeaderEpochRequest(
            replica_id=-1, topics=[OffsetForLeaderTopic(topic=topic, partitions=[asked])]
        )
        with Wire(self.brokers[leader].port) as connection:
            answer = connection.call(request, 4).topics[0].partitions[0]
        assert not answer.error_code, answer
        return answer.leader_epoch, answer.end_offset

    def reported(self, number: int, topic: str, partition: int = 0) -> Any:
        """What a broker's metadata says of a partition, as soon as it knows it."""

        def found() -> Any:
            answer = self.metadata(number, [topic]).topics[0]
            return next((each for each in answer.partitions if each.partition_index == partition), None)

        return wait_for(found, f"broker {number} to know {topic}-{partition}")

    # ---- files

    def segments(self, number: int, topic: str, partition: int = 0) -> bytes:
        """A replica's records, all segments one after the other."""
        folder = self.brokers[number].folder / f"{topic}-{partition}"
        return b"".join(file.read_bytes() for file in sorted(folder.glob("*.log")))

    def wait_folders(self, topic: str, brokers: set[int], partition: int = 0) -> None:
        """Wait until these brokers alone have the partition's folder."""
        wait_for(
            lambda: (
                {n for n, each in self.brokers.items() if (each.folder / f"{topic}-{partition}").exists()}
                == brokers
            ),
            f"{topic}-{partition} to be on {brokers} alone",
            60,
        )

    def wait_identical(self, topic: str, partition: int = 0, *, among: Iterable[int] | None = None) -> bytes:
        """Wait until all replicas have the same bytes; returns them."""
        numbers = list(self.brokers if among is None else among)

        def found() -> bytes:
            first = self.segments(numbers[0], topic, partition)
            same = all(self.segments(each, topic, partition) == first for each in numbers[1:])
            return first if same else b""

        return wait_for(found, f"identical segments of {topic}-{partition} on {numbers}", 120)

    def kill(self) -> None:
        if self._zk is not None:
            self._zk.stop()
            self._zk.close()
        super().kill()
