"""Two brokers behind networks that hold requests back, and leaders that move while a request is held."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from harness.ports import free_port
from tests.support import late_scenarios as late
from tests.support.cluster import Cluster
from tests.support.late_frames import Held, LateFrames
from tests.support.waiting import wait_for
from tests.support.zookeeper import ZooKeeperProcess

from ottla_client import NewTopic, TopicPartition
from ottla_client.admin import ElectionType
from ottla_client.sync import Admin

_INTERNAL = ("__transaction_state", "__consumer_offsets")
FIRST, SECOND = 1, 2


class LateCluster:
    """All partitions have both brokers for replicas, and FIRST leads.

    Clients reach the brokers through ``networks``; the brokers reach each other directly, and so do tests.
    """

    def __init__(self, folder: Path, zookeeper: ZooKeeperProcess) -> None:
        self.networks = {number: LateFrames() for number in (FIRST, SECOND)}
        waiting = list(self.networks.values())

        def listeners(port: int) -> Mapping[str, object]:
            network = waiting.pop(0)
            network.target = free_port()
            own = f"PLAINTEXT://127.0.0.1:{port}"
            return {
                "listeners": f"{own},LATE://127.0.0.1:{network.target}",
                "advertised.listeners": f"{own},LATE://{network.address}",
                "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LATE:PLAINTEXT",
            }

        self.cluster = Cluster(
            folder, zookeeper, 2, {**late.SETTINGS, "auto.create.topics.enable": "false"}, listeners=listeners
        )
        self.topics: list[str] = []

    @property
    def address(self) -> str:
        """For clients whose requests may be held back."""
        return ",".join(network.address for network in self.networks.values())

    def start(self) -> None:
        for network in self.networks.values():
            network.start()
        self.cluster.start()
        for name in _INTERNAL:
            self.create(name, {"cleanup.policy": "compact"})

    def close(self) -> None:
        self.cluster.kill()
        for network in self.networks.values():
            network.close()

    def create(self, topic: str, configs: Mapping[str, str] | None = None) -> None:
        with Admin(self.cluster.bootstrap) as admin:
            admin.create_topics([NewTopic(topic, assignment={0: [FIRST, SECOND]}, configs=configs or {})])
        self.topics.append(topic)
        self.cluster.wait_in_sync(topic, 2)

    def lead(self, broker: int) -> None:
        """Have a broker lead everything: as its first replica, by a preferred election."""
        places = [TopicPartition(topic, 0) for topic in self.topics]
        order = [broker, FIRST + SECOND - broker]
        with Admin(self.cluster.bootstrap) as admin:
            for topic in self.topics:
                self.cluster.wait_in_sync(topic, 2)
            admin.alter_partition_reassignments(dict.fromkeys(places, order))
            wait_for(lambda: not admin.list_partition_reassignments(), "the order of the replicas")
            admin.elect_leaders(ElectionType.PREFERRED, places)

        def leads() -> bool:
            answers = [self.cluster.metadata(number, self.topics) for number in (FIRST, SECOND)]
            leaders = {
                each.leader_id for answer in answers for topic in answer.topics for each in topic.partitions
            }
            return leaders == {broker}

        wait_for(leads, f"broker {broker} to lead {self.topics}")


class MovingNetwork:
    """Holds requests to FIRST. Before one is delivered, everything moves to SECOND and back."""

    def __init__(self, cluster: LateCluster) -> None:
        self._cluster = cluster

    def hold(self, api_key: int, *, cut: bool = True) -> MovedHeld:
        return MovedHeld(self._cluster, self._cluster.networks[FIRST].hold(api_key, cut=cut))


class MovedHeld:
    """A request that is held while leaders move."""

    def __init__(self, cluster: LateCluster, held: Held) -> None:
        self._cluster = cluster
        self._held = held
        self.wait = held.wait
        self.release = held.release

    def deliver(self) -> bytes | None:
        self._held.wait()
        self._cluster.lead(SECOND)
        self._cluster.lead(FIRST)
        return self._held.deliver()
