"""UpdateMetadata, key 6: the controller sends a broker the metadata that it returns to clients.

Version 1+ has endpoints in place of one address, 2+ racks, 3+ listener names, 4+ offline replicas, 5+ groups
partitions by topic and carries the broker's epoch, 7+ topic ids, 8+ whether the controller is KRaft's. Version 6 is
flexible. Kafka: ``UpdateMetadataRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class UpdateMetadataPartitionState(Struct):
    """One partition; leader -1 means none, -2 a topic that is being deleted."""

    topic_name: String = field("0-4", default="", ignorable=True)
    partition_index: Int32 = field(default=0)
    controller_epoch: Int32 = field(default=0)
    leader: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    isr: list[Int32] = field(default_factory=list)
    zk_version: Int32 = field(default=0)
    replicas: list[Int32] = field(default_factory=list)
    offline_replicas: list[Int32] = field("4+", default_factory=list, ignorable=True)


class UpdateMetadataTopicState(Struct):
    topic_name: String = field("5+", default="")
    topic_id: Uuid = field("7+", default=ZERO_UUID, ignorable=True)
    partition_states: list[UpdateMetadataPartitionState] = field("5+", default_factory=list)


class UpdateMetadataEndpoint(Struct):
    """One listener of a broker; the security protocol is PLAINTEXT 0, SSL 1, SASL_PLAINTEXT 2, SASL_SSL 3."""

    port: Int32 = field("1+", default=0)
    host: String = field("1+", default="")
    listener: String = field("3+", default="", ignorable=True)
    security_protocol: Int16 = field("1+", default=0)


class UpdateMetadataBroker(Struct):
    """A live broker and its listeners."""

    id: Int32 = field(default=0)
    v0_host: String = field("0", default="", ignorable=True)
    v0_port: Int32 = field("0", default=0, ignorable=True)
    endpoints: list[UpdateMetadataEndpoint] = field("1+", default_factory=list, ignorable=True)
    rack: String | None = field("2+", default="", ignorable=True)


class UpdateMetadataRequest(Message, key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    """Partitions that changed (the others stay as they were), and all live brokers."""

    controller_id: Int32 = field(default=0)
    is_kraft_controller: Bool = field("8+", default=False)
    type: Int8 = field("8+", default=0, tag=0)
    controller_epoch: Int32 = field(default=0)
    broker_epoch: Int64 = field("5+", default=-1, ignorable=True)
    ungrouped_partition_states: list[UpdateMetadataPartitionState] = field("0-4", default_factory=list)
    topic_states: list[UpdateMetadataTopicState] = field("5+", default_factory=list)
    live_brokers: list[UpdateMetadataBroker] = field(default_factory=list)


class UpdateMetadataResponse(Message, key=ApiKey.UPDATE_METADATA, versions="0-8", flexible="6+"):
    """STALE_CONTROLLER_EPOCH or STALE_BROKER_EPOCH, or nothing."""

    error_code: Int16 = field(default=0)
