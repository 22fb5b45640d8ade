"""What the controller knows of its cluster: Kafka's ``ControllerContext``. Read from the store when it is elected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from ottla_broker.store.keys import Assignment, BrokerRegistration, PartitionState

NO_LEADER = -1
LEADER_DURING_DELETE = -2
EPOCH_DURING_DELETE = -2

Partition = tuple[str, int]
"""A topic's name and a partition's number."""


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
    """A topic: what ``/brokers/topics/T`` says, and the states of its partitions (None: never led)."""

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
        epoch: this controller's; ``epoch_version`` is the version of its node, which every write checks.
        brokers: all that are registered.
        unreachable: registered, but their process doesn't answer: treated as if they were not there.
        leaving: brokers that are shutting down in order.
        deleting: topics that are to go.
        bad_disks: replicas whose log folder has failed, as (broker, partition).
    """

    def __init__(self, epoch: int, epoch_version: int) -> None:
        self.epoch = epoch
        self.epoch_version = epoch_version
        self.brokers: dict[int, RegisteredBroker] = {}
        self.unreachable: set[int] = set()
        self.leaving: set[int] = set()
        self.topics: dict[str, Topic] = {}
        self._by_id: dict[bytes, Topic] = {}
        self.deleting: set[str] = set()
        self.bad_disks: set[tuple[int, Partition]] = set()

    # ---- brokers

    def live(self) -> set[int]:
        """Brokers that can lead, and be led: here, answering, and not shutting down."""
        return self.brokers.keys() - self.unreachable - self.leaving

    def live_or_leaving(self) -> set[int]:
        """Brokers that can be told something."""
        return self.brokers.keys() - self.unreachable

    def is_online(self, broker: int, partition: Partition, *, leaving: bool = False) -> bool:
        """Whether a broker can serve a replica; ``leaving``: one that is shutting down can, too."""
        return broker in (self.live_or_leaving() if leaving else self.live()) and (
            (broker, partition) not in self.bad_disks
        )

    def online(self, partition: Partition, *, leaving: bool = False) -> set[int]:
        """The brokers that can serve a partition's replicas."""
        return {
            broker
            for broker in self.replicas(partition)
            if self.is_online(broker, partition, leaving=leaving)
        }

    # ---- topics

    def add_topic(self, topic: Topic) -> None:
        """A topic that is new, or was read anew."""
        self.topics[topic.name] = topic
        if topic.id is not None:
            self._by_id[topic.id] = topic

    def remove_topic(self, name: str) -> None:
        """A topic that is no more."""
        topic = self.topics.pop(name, None)
        if topic is not None and topic.id is not None:
            self._by_id.pop(topic.id, None)
        self.deleting.discard(name)
        self.bad_disks = {found for found in self.bad_disks if found[1][0] != name}

    def topic_by_id(self, topic_id: bytes) -> Topic | None:
        return self._by_id.get(topic_id)

    # ---- partitions

    def assignment(self, partition: Partition) -> Assignment:
        return self.topics[partition[0]].assignments[partition[1]]

    def replicas(self, partition: Partition) -> Sequence[int]:
        return self.assignment(partition).replicas

    def view(self, partition: Partition) -> PartitionView | None:
        topic = self.topics.get(partition[0])
        return None if topic is None else topic.partitions.get(partition[1])

    def has(self, partition: Partition) -> bool:
        topic = self.topics.get(partition[0])
        return topic is not None and partition[1] in topic.assignments

    def set_view(self, partition: Partition, view: PartitionView) -> None:
        self.topics[partition[0]].partitions[partition[1]] = view

    def partitions(self) -> Iterator[Partition]:
        """All partitions of all topics, those that are being deleted among them."""
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
        view = self.view(partition)
        return view is not None and self.is_online(view.state.leader, partition, leaving=True)

    def is_deleting(self, partition: Partition) -> bool:
        return partition[0] in self.deleting

    def offline_replicas(self, partition: Partition) -> list[int]:
        """The replicas that nobody serves now."""
        return [
            broker
            for broker in self.replicas(partition)
            if not self.is_online(broker, partition, leaving=True)
        ]
