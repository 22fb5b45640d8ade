"""The facts that ``ottla cluster doctor`` gathers before it checks anything."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from ottla_client.types import TopicPartition

from ..state import ClusterState

if TYPE_CHECKING:
    from ottla_client.admin import GroupDescription, HangingTransaction, PartitionLag, TransactionDescription
    from ottla_client.types import TopicMetadata
    from ottla_client.zookeeper_consumer.groups import GroupInZooKeeper

    from ...security.certificates import Validity
    from .descriptors import Descriptors
    from .share_deliveries import Deliveries

TOPIC_KEYS: Final = (
    "cleanup.policy",
    "max.message.bytes",
    "min.insync.replicas",
    "retention.bytes",
    "retention.ms",
    "segment.bytes",
    "segment.ms",
    "unclean.leader.election.enable",
)
BROKER_KEYS: Final = (
    "auto.create.topics.enable",
    "default.replication.factor",
    "message.max.bytes",
    "min.insync.replicas",
    "num.partitions",
    "replica.fetch.max.bytes",
    "replica.lag.time.max.ms",
    "unclean.leader.election.enable",
)
"""Also compared between brokers."""

Configs = Mapping[str, Mapping[str, str]]
"""Values of configs by the name of a topic or broker."""
Lags = Mapping[TopicPartition, "PartitionLag"]


@dataclass(slots=True)
class Gathered:
    """All that was found out. Times are in milliseconds.

    Attributes:
        groups, lags: described groups, and their lags by group.
        later: the groups that had a lag and members, and their lags some seconds later.
        later_groups: the states of groups at that time.
        open_transactions: those that have been open for longer than a minute.
        latest: the largest timestamp in each partition.
        dead_letters: how many records such topics got in the last hour.
        certificates: when those of brokers' listeners with TLS are valid, by broker and listener.
        descriptors: open file descriptors of brokers, and their limits.
        deliveries: what brokers say of share groups' records.
        in_zookeeper, later_in_zookeeper: groups that coordinate in ZooKeeper, at both looks.
        later_topics: the topics at the end, as ``state`` has them at the beginning.
        silent: brokers that are registered, and didn't answer while others did.
        unchecked: what couldn't be found out, and why.
        refused: what this user may not look at.
    """

    state: ClusterState
    now_ms: int
    topic_configs: Configs = field(default_factory=dict)
    broker_configs: Configs = field(default_factory=dict)
    groups: Mapping[str, GroupDescription] = field(default_factory=dict)
    lags: Mapping[str, Lags] = field(default_factory=dict)
    later: Mapping[str, Lags] = field(default_factory=dict)
    later_groups: Mapping[str, GroupDescription] = field(default_factory=dict)
    open_transactions: Mapping[str, TransactionDescription] = field(default_factory=dict)
    hanging: Sequence[HangingTransaction] = ()
    latest: Mapping[TopicPartition, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    certificates: Mapping[str, Validity] = field(default_factory=dict)
    descriptors: Mapping[int, Descriptors] = field(default_factory=dict)
    deliveries: Mapping[int, Deliveries] = field(default_factory=dict)
    in_zookeeper: Mapping[str, GroupInZooKeeper] = field(default_factory=dict)
    later_in_zookeeper: Mapping[str, GroupInZooKeeper] = field(default_factory=dict)
    later_topics: Mapping[str, TopicMetadata] = field(default_factory=dict)
    silent: Collection[int] = ()
    unchecked: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)


def number_in(configs: Mapping[str, str], key: str) -> int | None:
    try:
        return int(configs[key])
    except (KeyError, ValueError):
        return None
