"""Metadata, key 3: the brokers, and the leaders of partitions.

Version 1 has the controller, racks, and null for "all topics" where 0 had an empty list; 2 the cluster id,
4 may forbid auto-creation, 5 offline replicas, 7 leader epochs (KIP-320), 8 authorized operations
(KIP-430), 9 is flexible, 10 topic ids (KIP-516), 11 leaves the cluster's operations to DescribeCluster, 12
asks by topic id.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    """A topic by name, or from version 12 on by id with a null name."""

    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field(default="", nullable="10+")


class MetadataRequest(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
    """The topics; null means all, an empty list none (in version 0: all)."""

    topics: list[MetadataRequestTopic] | None = field(default_factory=list, nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataResponseBroker(Struct):
    """A live broker, and its address for clients."""

    node_id: Int32 = field(default=0)
    host: String = field(default="")
    port: Int32 = field(default=0)
    rack: String | None = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """Leader (-1: none), replicas, and those in sync."""

    error_code: Int16 = field(default=0)
    partition_index: Int32 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field(default_factory=list)
    isr_nodes: list[Int32] = field(default_factory=list)
    offline_replicas: list[Int32] = field("5+", default_factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    error_code: Int16 = field(default=0)
    name: String | None = field(default="", nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = field("8+", default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""


class MetadataResponse(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
    """The cluster as this broker knows it."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    """-1: there is none."""
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field("8-10", default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""
