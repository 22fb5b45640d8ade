"""The records of ``__consumer_offsets`` for groups whose partitions the broker assigns (KIP-848).

As in ``group_records``, the version of a key says what the record is, and a null value deletes it. Values have version
0, which is flexible. Kafka 4.0 adds key 16.
"""

from __future__ import annotations

from ..schema import ZERO_UUID, Bytes, Int8, Int32, Int64, Message, String, Struct, Uuid, field


class TopicPartitions(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[Int32] = field(default_factory=list)


class ConsumerGroupMetadataKey(Message, versions="3"):
    group_id: String = field(default="")


class ConsumerGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32 = field(default=0)


class ConsumerGroupPartitionMetadataKey(Message, versions="4"):
    group_id: String = field(default="")


class PartitionRacks(Struct):
    partition: Int32 = field(default=0)
    racks: list[String] = field(default_factory=list)


class SubscribedTopic(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    topic_name: String = field(default="")
    num_partitions: Int32 = field(default=0)
    partition_metadata: list[PartitionRacks] = field(default_factory=list)
    """Only partitions whose racks are known."""


class ConsumerGroupPartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The topics that the group consumes, as they were when its target was computed."""

    topics: list[SubscribedTopic] = field(default_factory=list)


class ConsumerGroupMemberMetadataKey(Message, versions="5"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ClassicProtocol(Struct):
    name: String = field(default="")
    metadata: Bytes = field(default=b"")


class ClassicMemberMetadata(Struct):
    session_timeout_ms: Int32 = field(default=0)
    supported_protocols: list[ClassicProtocol] = field(default_factory=list)


class ConsumerGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    instance_id: String | None = field(default=None)
    rack_id: String | None = field(default=None)
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)
    subscribed_topic_regex: String | None = field(default=None)
    rebalance_timeout_ms: Int32 = field(default=-1)
    server_assignor: String | None = field(default=None)
    classic_member_metadata: ClassicMemberMetadata | None = field(
        default_factory=ClassicMemberMetadata, tag=0
    )
    """Of a member that uses the classic protocol; null is written, because a field that is left out isn't null."""


class ConsumerGroupTargetAssignmentMetadataKey(Message, versions="6"):
    group_id: String = field(default="")


class ConsumerGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field(default=0)


class ConsumerGroupTargetAssignmentMemberKey(Message, versions="7"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ConsumerGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


class ConsumerGroupCurrentMemberAssignmentKey(Message, versions="8"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ConsumerGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32 = field(default=0)
    previous_member_epoch: Int32 = field(default=0)
    state: Int8 = field(default=0)
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)
    partitions_pending_revocation: list[TopicPartitions] = field(default_factory=list)


class ConsumerGroupRegularExpressionKey(Message, versions="16"):
    group_id: String = field(default="")
    regular_expression: String = field(default="")


class ConsumerGroupRegularExpressionValue(Message, versions="0", flexible="0+"):
    """The topics that match, and of which version of the metadata, at which time in ms."""

    topics: list[String] = field(default_factory=list)
    version: Int64 = field(default=0)
    timestamp: Int64 = field(default=0)
