"""The records of ``__consumer_offsets`` for share groups (KIP-932, Kafka 4.2).

As in ``group_records``, the version of a key says what the record is, and a null value deletes it. Values have version
0, which is flexible.
"""

from __future__ import annotations

from ..schema import ZERO_UUID, Int8, Int32, Int64, Message, String, Struct, Uuid, field
from .consumer_group_records import TopicPartitions


class ShareGroupMemberMetadataKey(Message, versions="10"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupMemberMetadataValue(Message, versions="0", flexible="0+"):
    rack_id: String | None = field(default=None)
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)


class ShareGroupMetadataKey(Message, versions="11"):
    group_id: String = field(default="")


class ShareGroupMetadataValue(Message, versions="0", flexible="0+"):
    epoch: Int32 = field(default=0)
    metadata_hash: Int64 = field(default=0)
    """Of the subscribed topics, as they were when the group's target was computed."""


class ShareGroupTargetAssignmentMetadataKey(Message, versions="12"):
    group_id: String = field(default="")


class ShareGroupTargetAssignmentMetadataValue(Message, versions="0", flexible="0+"):
    assignment_epoch: Int32 = field(default=0)


class ShareGroupTargetAssignmentMemberKey(Message, versions="13"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupTargetAssignmentMemberValue(Message, versions="0", flexible="0+"):
    topic_partitions: list[TopicPartitions] = field(default_factory=list)


class ShareGroupCurrentMemberAssignmentKey(Message, versions="14"):
    group_id: String = field(default="")
    member_id: String = field(default="")


class ShareGroupCurrentMemberAssignmentValue(Message, versions="0", flexible="0+"):
    member_epoch: Int32 = field(default=0)
    previous_member_epoch: Int32 = field(default=0)
    state: Int8 = field(default=0)
    assigned_partitions: list[TopicPartitions] = field(default_factory=list)


class ShareGroupStatePartitionMetadataKey(Message, versions="15"):
    group_id: String = field(default="")


class TopicPartitionsInfo(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    topic_name: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class TopicInfo(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    topic_name: String = field(default="")


class ShareGroupStatePartitionMetadataValue(Message, versions="0", flexible="0+"):
    """The partitions that may have state in ``__share_group_state``."""

    initializing_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    initialized_topics: list[TopicPartitionsInfo] = field(default_factory=list)
    deleting_topics: list[TopicInfo] = field(default_factory=list)
