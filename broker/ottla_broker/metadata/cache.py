"""The brokers and topics that this broker knows, from which it answers clients.

Filled by the controller; owned by the loop thread. Nothing here is kept on disk.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import Final

from ottla_broker.log.config import LogConfig
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.metadata import MetadataResponsePartition, MetadataResponseTopic

NO_LEADER: Final = -1
_NONE: Final = int(ErrorCode.NONE)
_LEADER_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)


@dataclass(slots=True)
class BrokerInfo:
    """A broker that is alive. ``listeners`` has the advertised (host, port) by listener name."""

    id: int
    host: str
    port: int
    rack: str | None
    listeners: Mapping[str, tuple[str, int]]


@dataclass(eq=False, slots=True)
class PartitionInfo:
    """One partition. Replaced, not changed, when something about it changes."""

    index: int
    leader: int
    leader_epoch: int
    replicas: Sequence[int]
    isr: Sequence[int]
    offline: Sequence[int] = ()

    def __repr__(self) -> str:
        return (
            f"PartitionInfo({self.index}, leader={self.leader}, leader_epoch={self.leader_epoch},"
            f" replicas={list(self.replicas)}, isr={list(self.isr)}, offline={list(self.offline)})"
        )


@dataclass(slots=True)
class TopicInfo:
    """One topic. Its partitions are a map because the controller may announce any indexes.

    Replaced, not changed, when something about it changes.

    Attributes:
        configs: the topic's own settings, as text.
        log_config: the settings in force.
    """

    name: str
    topic_id: bytes
    partitions: dict[int, PartitionInfo]
    internal: bool
    configs: Mapping[str, str]
    log_config: LogConfig


class ClientTopic:
    """A topic as clients see it: without leaders that this broker can't vouch for.

    Made by :class:`MetadataCache`, and made again when anything about the topic changes.

    Attributes:
        info: the topic as the controller described it.
        leaders: the leader of each partition by its index; -1 for none that clients should ask.
    """

    __slots__ = ("_response", "info", "leaders")

    def __init__(self, info: TopicInfo, has_leader: Callable[[PartitionInfo], bool]) -> None:
        self.info = info
        self.leaders: Mapping[int, int] = {
            index: each.leader if has_leader(each) else NO_LEADER for index, each in info.partitions.items()
        }
        self._response: MetadataResponseTopic | None = None

    def error(self, index: int) -> int:
        """The error code that clients get with a partition: LEADER_NOT_AVAILABLE, or NONE."""
        return _NONE if self.leaders[index] >= 0 else _LEADER_NOT_AVAILABLE

    @property
    def response(self) -> MetadataResponseTopic:
        """The topic as Metadata answers it; made once, because most requests ask for many partitions."""
        found = self._response
        if found is None:
            info = self.info
            partitions = [
                MetadataResponsePartition(
                    error_code=self.error(index),
                    partition_index=index,
                    leader_id=self.leaders[index],
                    leader_epoch=each.leader_epoch,
                    replica_nodes=list(each.replicas),
                    isr_nodes=list(each.isr),
                    offline_replicas=list(each.offline),
                )
                for index, each in info.partitions.items()
            ]
            found = self._response = MetadataResponseTopic(
                name=info.name, topic_id=info.topic_id, is_internal=info.internal, partitions=partitions
            )
        return found


class MetadataCache:
    """Topics by name and by id, brokers by number.

    Attributes:
        unreachable: live brokers whose process doesn't answer this one now.
        departed: brokers that left a moment ago; Metadata still names them.
        doubtful: partitions that this broker may no longer lead; it doesn't know which broker does.
        group_configs: the groups' own settings that are in force.
        client_metrics: the settings of the client metrics subscriptions, by name; ``client_metrics_version`` rises
            when one changes.
        layout_version: rises when a topic is created or deleted, or its partitions or their replicas change.
        check_brokers: called before clients learn of leaders, to notice connections to other brokers that have closed
            but whose event waits behind the clients' requests.
    """

    def __init__(self, cluster_id: str = "", controller_id: int = -1) -> None:
        self.cluster_id = cluster_id
        self.controller_id = controller_id
        self.brokers: dict[int, BrokerInfo] = {}
        self.unreachable: set[int] = set()
        self.departed: dict[int, BrokerInfo] = {}
        self.check_brokers: Callable[[], None] = lambda: None
        self.doubtful: Set[tuple[str, int]] = frozenset()
        self.group_configs: dict[str, Mapping[str, str]] = {}
        self.client_metrics: dict[str, Mapping[str, str]] = {}
        self.client_metrics_version = 0
        self.layout_version = 0
        self._topics: dict[str, TopicInfo] = {}
        self._by_id: dict[bytes, TopicInfo] = {}
        self._client_topics: dict[str, ClientTopic] = {}

    def put_client_metrics(self, name: str, settings: Mapping[str, str]) -> None:
        """Put a client metrics subscription in force; one without settings is removed."""
        if settings:
            self.client_metrics[name] = dict(settings)
        else:
            self.client_metrics.pop(name, None)
        self.client_metrics_version += 1

    def set_reachable(self, broker_id: int, reachable: bool) -> None:
        """Note whether a broker's process answers this one: clients aren't sent to one that doesn't."""
        if reachable != (broker_id in self.unreachable):
            return
        if reachable:
            self.unreachable.discard(broker_id)
        else:
            self.unreachable.add(broker_id)
        self._client_topics.clear()

    def set_doubtful(self, partitions: Set[tuple[str, int]]) -> None:
        """Hide the leaders of these partitions, and of no others, from clients: they may be out of date."""
        changed, self.doubtful = self.doubtful ^ partitions, partitions
        for name, _ in changed:
            self._client_topics.pop(name, None)

    def client_topic(self, name: str) -> ClientTopic | None:
        """The topic as clients see it. Only this names leaders reliably; one in :class:`PartitionInfo` may be gone."""
        found = self._client_topics.get(name)
        if found is None:
            info = self._topics.get(name)
            if info is None:
                return None
            unreachable, doubtful = self.unreachable, self.doubtful
            found = self._client_topics[name] = ClientTopic(
                info,
                lambda partition: (
                    partition.leader not in unreachable and (name, partition.index) not in doubtful
                ),
            )
        return found

    def topic(self, name: str) -> TopicInfo | None:
        return self._topics.get(name)

    def topic_by_id(self, topic_id: bytes) -> TopicInfo | None:
        return self._by_id.get(topic_id)

    def topics(self) -> Iterable[TopicInfo]:
        """All topics, in the order they became known."""
        return self._topics.values()

    def __contains__(self, name: str) -> bool:
        return name in self._topics

    def __len__(self) -> int:
        """The number of topics."""
        return len(self._topics)

    def put(self, topic: TopicInfo) -> None:
        """Add or replace a topic."""
        before = self._topics.get(topic.name)
        if before is not None:
            self._forget_id(before)
        if before is None or _layout(before) != _layout(topic):
            self.layout_version += 1
        self._topics[topic.name] = topic
        self._client_topics.pop(topic.name, None)
        if any(topic.topic_id):
            # Topics from before Kafka 2.8 have no id: zeros stand for it.
            self._by_id[topic.topic_id] = topic

    def remove(self, name: str) -> None:
        """Forget a topic, if it is known."""
        topic = self._topics.pop(name, None)
        if topic is not None:
            self._forget_id(topic)
            self._client_topics.pop(name, None)
            self.layout_version += 1

    def _forget_id(self, topic: TopicInfo) -> None:
        # A mistaken sender may have given the id to another topic since.
        if self._by_id.get(topic.topic_id) is topic:
            del self._by_id[topic.topic_id]

    def log_config(self, name: str) -> LogConfig | None:
        """The settings in force for a topic, if it is known."""
        topic = self._topics.get(name)
        return None if topic is None else topic.log_config


def _layout(topic: TopicInfo) -> tuple[bytes, dict[int, tuple[int, ...]]]:
    """The topic's id, and the replicas of each partition."""
    return topic.topic_id, {index: tuple(each.replicas) for index, each in topic.partitions.items()}
