"""The controller's view of its cluster, read from the store when it is elected: Kafka's ``ControllerContext``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from ottla_broker.controller.api import Partition
from ottla_broker.counters import Timings
from ottla_broker.store.keys import Assignment, BrokerRegistration, PartitionState
from ottla_protocol.errors import ErrorCode, KafkaError

NO_LEADER = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2
NO_EPOCH = -1

PORTION: Final = 500
"""Partitions that are dealt with before others get their turn on the event loop."""


class RegisteredBroker(NamedTuple):
    """A broker whose node is in the store. ``epoch`` is the transaction that made the node (KIP-380)."""

    id: int
    epoch: int
    registration: BrokerRegistration

    @property
    def rack(self) -> str | None:
        return self.registration.rack


class PartitionView(NamedTuple):
    """A partition's state in the store, and the version of its node."""

    state: PartitionState
    version: int


class Topic:
    """A topic in ``/brokers/topics/T``, and its partitions' states. A partition without a state never had a leader."""

    __slots__ = ("assignments", "id", "name", "partitions", "version")

    def __init__(
        self, name: str, topic_id: bytes | None, assignments: Mapping[int, Assignment], version: int
    ) -> None:
        self.name = name
        self.id = topic_id
        self.assignments = dict(assignments)
        self.version = version
        self.partitions: dict[int, PartitionView] = {}


class Context:
    """Owned by the controller's task.

    Attributes:
        epoch: the controller epoch; ``epoch_version`` is the version of its node, which every write checks.
        brokers: all registered brokers.
        unreachable: registered brokers whose process doesn't answer; they count as gone.
        shutting_down: brokers in a controlled shutdown.
        deleting: topics that are being deleted.
        replicas_on_offline_dirs: replicas whose log folder has failed, as (broker, partition).
        elections: how long it took to choose leaders and write them to the store, each time.
        unclean_elections: leaders elected that may lack committed records.
    """

    def __init__(self, epoch: int, epoch_version: int) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.brokers: dict[int, RegisteredBroker] = {}
        self.unreachable: set[int] = set()
        self.shutting_down: set[int] = set()
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.deleting: set[str] = set()
        self.replicas_on_offline_dirs: set[tuple[int, Partition]] = set()
        self.elections = Timings()
        self.unclean_elections = 0

    def live(self) -> set[int]:
        """Brokers that can lead and follow: registered, reachable, and not shutting down."""
        return self.brokers.keys() - self.unreachable - self.shutting_down

    def live_or_shutting_down(self) -> set[int]:
        """Brokers that requests can be sent to."""
        return self.brokers.keys() - self.unreachable

    def is_online(self, broker: int, partition: Partition, *, shutting_down: bool = False) -> bool:
        """Whether a broker can serve a replica. ``shutting_down`` includes brokers in a controlled shutdown."""
        return broker in (self.live_or_shutting_down() if shutting_down else self.live()) and (
            (broker, partition) not in self.replicas_on_offline_dirs
        )

    def online(self, partition: Partition, *, shutting_down: bool = False) -> set[int]:
        """The brokers that can serve a partition's replicas."""
        return {
            broker
            for broker in self.replicas(partition)
            if self.is_online(broker, partition, shutting_down=shutting_down)
        }

    def check_broker_epoch(self, broker: int, epoch: int, unknown: ErrorCode) -> None:
        """Check that a request comes from the registered broker, not from an earlier process of it.

        Raises KafkaError: ``unknown`` when the broker isn't registered, STALE_BROKER_EPOCH.
        """
        found = self.brokers.get(broker)
        if found is None:
            raise KafkaError(unknown, f"Broker {broker} is not registered.")
        if epoch not in (NO_EPOCH, found.epoch):
            raise KafkaError(ErrorCode.STALE_BROKER_EPOCH)

    def add_topic(self, topic: Topic) -> None:
        self.topics[topic.name] = topic
        if topic.id is not None:
            self._by_id[topic.id] = topic

    def remove_topic(self, name: str) -> None:
        topic = self.topics.pop(name, None)
        if topic is not None and topic.id is not None:
            self._by_id.pop(topic.id, None)
        self.deleting.discard(name)
        self.replicas_on_offline_dirs = {each for each in self.replicas_on_offline_dirs if each[1][0] != name}

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    def assignment(self, partition: Partition) -> Assignment:
        return self.topics[partition[0]].assignments[partition[1]]

    def replicas(self, partition: Partition) -> Sequence[int]:
        return self.assignment(partition).replicas

    def view(self, partition: Partition) -> PartitionView | None:
        topic = self.topics.get(partition[0])
        return None if topic is None else topic.partitions.get(partition[1])

    def leader(self, partition: Partition) -> int:
        """The partition's leader, or NO_LEADER."""
        view = self.view(partition)
        return NO_LEADER if view is None else view.state.leader

    def has(self, partition: Partition) -> bool:
        topic = self.topics.get(partition[0])
        return topic is not None and partition[1] in topic.assignments

    def set_view(self, partition: Partition, view: PartitionView) -> None:
        self.topics[partition[0]].partitions[partition[1]] = view

    def partitions(self) -> Iterator[Partition]:
        """All partitions of all topics, including topics that are being deleted."""
        for name, topic in self.topics.items():
            for index in topic.assignments:
                yield name, index

    def partitions_on(self, brokers: Iterable[int]) -> Iterator[Partition]:
        """The partitions that have a replica on any of these brokers."""
        wanted = set(brokers)
        for name, topic in self.topics.items():
            for index, assignment in topic.assignments.items():
                if not wanted.isdisjoint(assignment.replicas):
                    yield name, index

    def is_led(self, partition: Partition) -> bool:
        """Whether the partition has a leader that can serve it."""
        return self.is_online(self.leader(partition), partition, shutting_down=True)

    def is_deleting(self, partition: Partition) -> bool:
        return partition[0] in self.deleting

    def offline_replicas(self, partition: Partition) -> list[int]:
        """The brokers whose replica of the partition can't be served now."""
        return [
            broker
            for broker in self.replicas(partition)
            if not self.is_online(broker, partition, shutting_down=True)
        ]
