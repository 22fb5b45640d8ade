"""Metadata: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class MetadataRequestTopic(Struct):
    """Part of Metadata."""

    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    name: String | None = field(default="", nullable="10+")


class MetadataRequest(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
    """Part of Metadata."""

    topics: list[MetadataRequestTopic] | None = field(default_factory=list, nullable="1+")
    allow_auto_topic_creation: Bool = field("4+", default=True)
    include_cluster_authorized_operations: Bool = field("8-10", default=False)
    include_topic_authorized_operations: Bool = field("8+", default=False)


class MetadataResponseBroker(Struct):
    """Part of Metadata."""

    node_id: Int32 = field(default=0)
    host: String = field(default="")
    port: Int32 = field(default=0)
    rack: String | None = field("1+", default=None, ignorable=True)


class MetadataResponsePartition(Struct):
    """Part of Metadata."""

    error_code: Int16 = field(default=0)
    partition_index: Int32 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field("7+", default=-1, ignorable=True)
    replica_nodes: list[Int32] = field(default_factory=list)
    isr_nodes: list[Int32] = field(default_factory=list)
    offline_replicas: list[Int32] = field("5+", default_factory=list, ignorable=True)


class MetadataResponseTopic(Struct):
    """Part of Metadata."""

    error_code: Int16 = field(default=0)
    name: String | None = field(default="", nullable="12+")
    topic_id: Uuid = field("10+", default=ZERO_UUID, ignorable=True)
    is_internal: Bool = field("1+", default=False, ignorable=True)
    partitions: list[MetadataResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = field("8+", default=-0x8000_0000)


class MetadataResponse(Message, key=ApiKey.METADATA, versions="0-12", flexible="9+"):
    """Part of Metadata."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    brokers: list[MetadataResponseBroker] = field(default_factory=list)
    cluster_id: String | None = field("2+", default=None, ignorable=True)
    controller_id: Int32 = field("1+", default=-1, ignorable=True)
    topics: list[MetadataResponseTopic] = field(default_factory=list)
    cluster_authorized_operations: Int32 = field("8-10", default=-0x8000_0000)
