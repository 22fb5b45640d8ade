"""Reads the facts about a broker's topics from Kafka's metadata log, ZooKeeper's nodes, or Ottla's own store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from ottla_broker.store import journal
from ottla_broker.store.api import StoreError
from ottla_broker.store.keys import (
    DEFAULT_ENTITY,
    AdoptedNode,
    BadNodeError,
    ClusterIdNode,
    ConfigNode,
    DeleteTopicNode,
    LastEpochNode,
    ProducerIdBlockNode,
    TopicNode,
    TopicPartitionStateNode,
)
from ottla_broker.tools.data_folders import DataFolderError
from ottla_broker.tools.metadata_log import BROKER_RESOURCE, TOPIC_RESOURCE, MetadataImage

Nodes = Mapping[str, bytes]
"""Nodes of a coordination store: data by path."""

SECRETS: Final = {
    "/kafka-acl": "ACLs",
    "/config/users": "users' quotas and passwords",
    "/config/clients": "clients' quotas",
    "/config/ips": "addresses' quotas",
}
"""Nodes whose children Ottla doesn't use, and what they are."""


@dataclass(slots=True)
class KnownPartition:
    """``replicas`` are the ids of brokers; ``in_sync`` whether this broker is."""

    replicas: list[int]
    in_sync: bool
    leader_epoch: int


@dataclass(slots=True)
class KnownTopic:
    """``configs`` are the topic's own; None if they aren't known."""

    name: str
    topic_id: bytes | None
    partitions: dict[int, KnownPartition]
    configs: dict[str, str] | None


@dataclass(slots=True)
class Knowledge:
    """Everything that a source says.

    Attributes:
        source: where it comes from, in words.
        broker_configs: dynamic settings, by broker id or ``<default>``.
        next_producer_id: no id from here on was given out; None if that isn't known.
        left_out: what Ottla doesn't take over, one line each.
        last_epochs: the highest leader epochs of deleted topics.
        adopted: which end of a metadata log the store was made from.
    """

    source: str
    cluster_id: str | None = None
    topics: dict[str, KnownTopic] = field(default_factory=dict)
    broker_configs: dict[str, dict[str, str]] = field(default_factory=dict)
    next_producer_id: int | None = None
    left_out: list[str] = field(default_factory=list)
    last_epochs: dict[str, int] = field(default_factory=dict)
    adopted: bytes | None = None


def from_metadata_log(image: MetadataImage, broker_id: int) -> Knowledge:
    """Return what Kafka's metadata log says about this broker."""
    known = Knowledge("Kafka's metadata log", next_producer_id=image.next_producer_id)
    known.adopted = AdoptedNode.encode(image.end_offset, image.last_crc)
    for topic in image.topics.values():
        partitions = {
            index: KnownPartition(each.replicas, broker_id in each.isr, each.leader_epoch)
            for index, each in sorted(topic.partitions.items())
        }
        configs = image.configs.get((TOPIC_RESOURCE, topic.name), {})
        known.topics[topic.name] = KnownTopic(topic.name, topic.topic_id, partitions, configs)
    for name in ("", str(broker_id)):
        if settings := image.configs.get((BROKER_RESOURCE, name)):
            known.broker_configs[name or DEFAULT_ENTITY] = settings
    if image.acls:
        known.left_out.append(f"{len(image.acls)} ACLs: add those that you need with ottla acls add")
    if image.users:
        users = ", ".join(sorted({name for name, _ in image.users}))
        known.left_out.append(f"the passwords of {users}: set them again with kafka-configs")
    if image.quotas:
        known.left_out.append(f"{len(image.quotas)} quotas: set them again with kafka-configs")
    if image.tokens:
        known.left_out.append(f"{len(image.tokens)} delegation tokens: Ottla has none")
    others = {kind for kind, _ in image.configs} - {TOPIC_RESOURCE, BROKER_RESOURCE}
    if others:
        known.left_out.append("settings of client metrics and groups: Ottla has none")
    if image.damage is not None:
        known.left_out.append(f"the end of the metadata log: {image.damage}")
    return known


def from_nodes(nodes: Nodes, broker_id: int, source: str) -> Knowledge:
    """Return what the nodes of ZooKeeper or of Ottla's store say about this broker. Raises BadNodeError."""
    known = Knowledge(source)
    if ClusterIdNode.PATH in nodes:
        known.cluster_id = ClusterIdNode.decode(nodes[ClusterIdNode.PATH])
    doomed = set(children(nodes, DeleteTopicNode.PARENT))
    for name in children(nodes, TopicNode.PARENT):
        if name in doomed:
            known.left_out.append(f"topic {name}, which was being deleted")
            continue
        topic_id, assignments = TopicNode.decode(name, nodes[TopicNode.path(name)])
        partitions = {}
        for index, assignment in assignments.items():
            path = TopicPartitionStateNode.path(name, index)
            state = TopicPartitionStateNode.decode(path, nodes[path]) if path in nodes else None
            partitions[index] = KnownPartition(
                list(assignment.replicas),
                state is None or broker_id in state.isr,
                0 if state is None else state.leader_epoch,
            )
        path = ConfigNode.path(ConfigNode.TOPICS, name)
        configs = ConfigNode.decode(path, nodes.get(path, b""))
        known.topics[name] = KnownTopic(name, topic_id, partitions, configs)
    for entity in (DEFAULT_ENTITY, str(broker_id)):
        path = ConfigNode.path(ConfigNode.BROKERS, entity)
        if settings := ConfigNode.decode(path, nodes.get(path, b"")):
            known.broker_configs[entity] = settings
    block = ProducerIdBlockNode.decode(nodes.get(ProducerIdBlockNode.PATH, b""))
    known.next_producer_id = 0 if block is None else block.last + 1
    for name in children(nodes, LastEpochNode.PARENT):
        known.last_epochs[name] = LastEpochNode.decode(name, nodes[LastEpochNode.path(name)])
    known.adopted = nodes.get(AdoptedNode.PATH)
    for path, what in SECRETS.items():
        if any(children(nodes, path)):
            known.left_out.append(f"{what} (under {path}): Ottla has none")
    return known


def children(nodes: Nodes, parent: str) -> Iterator[str]:
    """The names of a node's children, sorted."""
    above = parent + "/"
    return (
        path[len(above) :]
        for path in sorted(nodes)
        if path.startswith(above) and "/" not in path[len(above) :]
    )


def read_journal(path: str) -> dict[str, bytes]:
    """The nodes in an embedded store's journal. Raises DataFolderError: it is damaged."""
    nodes: dict[str, bytes] = {}
    try:
        for payload in journal.load(Path(path)).payloads:
            for change in journal.decode_changes(payload):
                if change.data is None:
                    nodes.pop(change.path, None)
                else:
                    nodes[change.path] = change.data
    except (StoreError, ValueError) as error:
        raise DataFolderError(f"{error}; or move the file away, and its topics' settings are lost") from error
    return nodes


def knowledge_of(nodes: Nodes, broker_id: int, source: str) -> Knowledge:
    """Like :func:`from_nodes`; raises DataFolderError with a line for people."""
    try:
        return from_nodes(nodes, broker_id, source)
    except BadNodeError as error:
        raise DataFolderError(f"{source}: {error}") from error
