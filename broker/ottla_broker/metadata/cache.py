"""What this broker knows of brokers and topics: what handlers answer from.

Filled by the controller; owned by the loop thread. Nothing here is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from ottla_broker.log.config import LogConfig


@dataclass(slots=True)
class BrokerInfo:
    """A broker that is alive. ``listeners`` has the advertised (host, port) by listener name."""

    id: int
    host: str
    port: int
    rack: str | None
    listeners: Mapping[str, tuple[str, int]]


class PartitionInfo:
    """One partition, as clients are told of it. Replaced, not changed, when something about it changes."""

    __slots__ = ("index", "isr", "leader", "leader_epoch", "offline", "replicas")

    def __init__(
        self,
        index: int,
        leader: int,
        leader_epoch: int,
        replicas: Sequence[int],
        isr: Sequence[int],
        offline: Sequence[int] = (),
    ) -> None:
        self.index = index
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.replicas = replicas
        self.isr = isr
        self.offline = offline

    def __repr__(self) -> str:
        return (
            f"PartitionInfo({self.index}, leader={self.leader}, leader_epoch={self.leader_epoch},"
            f" replicas={list(self.replicas)}, isr={list(self.isr)}, offline={list(self.offline)})"
        )


@dataclass(slots=True)
class TopicInfo:
    """One topic, its partitions by their index: a request of the controller may name any.

    ``configs`` are the topic's own settings, as text; ``log_config`` is what is in force. ``answer`` holds
    what the Metadata handler has made of the topic, for as long as this object is in the cache.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionInfo]
    internal: bool
    configs: Mapping[str, str]
    log_config: LogConfig
    answer: Any = field(default=None, compare=False, repr=False)


class MetadataCache:
    """Topics by name and by id, brokers by number.

    ``unreachable`` are listed brokers whose process doesn't respond to this one. ``doubtful`` are partitions that
    this broker may no longer lead, without knowing their leader. ``departed`` are brokers that have just gone, which
    Metadata responses still name. ``check_brokers`` runs before each Metadata response, to notice dead brokers whose
    event the loop has not processed yet.
    """

    def __init__(self, cluster_id: str = "", controller_id: int = -1) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: dict[int, BrokerInfo] = {}
        self.unreachable: set[int] = set()
        self.departed: dict[int, BrokerInfo] = {}
        self.check_brokers: Callable[[], None] = lambda: None
        self.doubtful: Set[tuple[str, int]] = frozenset()
        self._topics: dict[str, TopicInfo] = {}
        self._by_id: dict[bytes, TopicInfo] = {}

    def set_reachable(self, broker_id: int, reachable: bool) -> None:
        """Whether a broker's process answers, as far as this one sees: clients are not sent to one that doesn't."""
        if reachable != (broker_id in self.unreachable):
            return
        if reachable:
            self.unreachable.discard(broker_id)
        else:
            self.unreachable.add(broker_id)
        for topic in self._topics.values():
            topic.answer = None

    def is_leaderless(self, topic: str, partition: PartitionInfo) -> bool:
        """Whether clients had better wait before they ask the partition's leader, if it has one."""
        return partition.leader in self.unreachable or (topic, partition.index) in self.doubtful

    def set_doubtful(self, partitions: Set[tuple[str, int]]) -> None:
        """Partitions that clients are told have no leader: what this broker knows of them may be of yesterday."""
        changed, self.doubtful = self.doubtful ^ partitions, partitions
        for name, _ in changed:
            topic = self._topics.get(name)
            if topic is not None:
                topic.answer = None

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterable[TopicInfo]:
        """All topics, in the order in which they became known."""
        return self._topics.values()

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __len__(self) -> int:
        """How many topics there are."""
        return len(self._topics)

    def put(self, topic: TopicInfo) -> None:
        """Make a topic known, or replace what is known of it."""
        before = self._topics.get(topic.name)
        if before is not None and before.topic_id != topic.topic_id:
            del self._by_id[before.topic_id]
        self._topics[topic.name] = topic
        self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Forget a topic; one that isn't known is no error."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            del self._by_id[topic.topic_id]

    def log_config(self, name: str) -> LogConfig | None:
        """The settings in force for a topic, if it is known."""
        topic = self._topics.get(name)
        return None if topic is None else topic.log_config
