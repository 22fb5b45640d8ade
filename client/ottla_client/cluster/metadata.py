"""The metadata of a cluster: nodes, topics, leaders. State without I/O.

Leader epochs never go down for the same topic id (KIP-320), so a broker that lags behind can't bring back an old
leader. A topic that was deleted and created again has a new id and starts over.
"""

from __future__ import annotations

from collections.abc import Collection

from ottla_client.types import Node, PartitionMetadata, TopicMetadata
from ottla_protocol.errors import RETRIABLE, ErrorCode, error_code
from ottla_protocol.messages import metadata as wire
from ottla_protocol.schema import ZERO_UUID

_FORBIDS_CREATION = 4
"""The first version of Metadata that can ask for a topic without creating it."""


def metadata_request(
    names: Collection[str] | None, version: int, *, allow_auto_create: bool = False
) -> wire.MetadataRequest:
    """A request for ``names``; None asks for all topics, an empty collection for none.

    Version 0 can't ask for none, and up to version 3 asking for a topic may create it.
    """
    topics: list[wire.MetadataRequestTopic] | None = [
        wire.MetadataRequestTopic(name=name) for name in names or ()
    ]
    if names is None and version > 0:
        topics = None
    return wire.MetadataRequest(
        topics=topics, allow_auto_topic_creation=allow_auto_create or version < _FORBIDS_CREATION
    )


class MetadataCache:
    def __init__(self) -> None:
        self.nodes: dict[int, Node] = {}
        self.controller_id: int | None = None
        self.cluster_id: str | None = None
        self.topics: dict[str, TopicMetadata] = {}
        self.leaders: dict[tuple[str, int], int | None] = {}
        self.errors: dict[str, ErrorCode] = {}
        """The error codes of topics that are missing from the cache."""

    def apply(
        self, response: wire.MetadataResponse, asked: Collection[str] | None
    ) -> dict[str, TopicMetadata]:
        """Apply a response; returns its topics, including those with an error.

        A topic that is unknown, invalid or forbidden leaves the cache. A topic with a temporary error stays.
        """
        self.nodes = {
            each.node_id: Node(each.node_id, each.host, each.port, each.rack) for each in response.brokers
        }
        self.controller_id = response.controller_id if response.controller_id >= 0 else None
        self.cluster_id = response.cluster_id if response.cluster_id is not None else self.cluster_id
        answered: dict[str, TopicMetadata] = {}
        for each in response.topics:
            if each.name is None:
                continue
            known = self.topics.get(each.name)
            topic = _topic(each, known)
            answered[topic.name] = topic
            if not topic.error:
                self._put(topic)
            else:
                code = self.errors[topic.name] = error_code(topic.error)
                if code not in RETRIABLE or code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                    self.forget(topic.name)
        if asked is None:
            for name in self.topics.keys() - answered.keys():
                self.forget(name)
        return answered

    def forget(self, name: str) -> None:
        """Remove a topic."""
        topic = self.topics.pop(name, None)
        if topic is not None:
            for partition in topic.partitions:
                del self.leaders[name, partition]

    def _put(self, topic: TopicMetadata) -> None:
        self.forget(topic.name)
        self.errors.pop(topic.name, None)
        self.topics[topic.name] = topic
        for partition in topic.partitions.values():
            self.leaders[topic.name, partition.partition] = partition.leader


def unsettled(topic: TopicMetadata | None) -> bool:
    """Whether to ask again soon: a partition has no leader, or the error is temporary."""
    if topic is None:
        return True
    if topic.error:
        return error_code(topic.error) in RETRIABLE
    return any(each.leader is None for each in topic.partitions.values())


def _topic(answer: wire.MetadataResponseTopic, known: TopicMetadata | None) -> TopicMetadata:
    topic_id = answer.topic_id if answer.topic_id != ZERO_UUID else None
    same = known is not None and known.id == topic_id
    partitions: dict[int, PartitionMetadata] = {}
    for each in sorted(answer.partitions, key=lambda partition: partition.partition_index):
        partition = _partition(each)
        before = known.partitions.get(partition.partition) if known is not None and same else None
        if (
            before is not None
            and before.leader_epoch is not None
            and partition.leader_epoch is not None
            and partition.leader_epoch < before.leader_epoch
        ):
            partition = before
        partitions[partition.partition] = partition
    return TopicMetadata(answer.name or "", topic_id, partitions, answer.is_internal, answer.error_code)


def _partition(answer: wire.MetadataResponsePartition) -> PartitionMetadata:
    return PartitionMetadata(
        answer.partition_index,
        answer.leader_id if answer.leader_id >= 0 else None,
        answer.leader_epoch if answer.leader_epoch >= 0 else None,
        tuple(answer.replica_nodes),
        tuple(answer.isr_nodes),
        tuple(answer.offline_replicas),
        answer.error_code,
    )
