"""DescribeTopicPartitions: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class TopicRequest(Struct):
    """Part of DescribeTopicPartitions."""

    name: String = field(default="")


class Cursor(Struct):
    """Part of DescribeTopicPartitions."""

    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)


class DescribeTopicPartitionsRequest(
    Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """Part of DescribeTopicPartitions."""

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """Part of DescribeTopicPartitions."""

    error_code: Int16 = field(default=0)
    partition_index: Int32 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=-1)
    replica_nodes: list[Int32] = field(default_factory=list)
    isr_nodes: list[Int32] = field(default_factory=list)
    eligible_leader_replicas: list[Int32] | None = field(default=None)
    last_known_elr: list[Int32] | None = field(default=None)
    offline_replicas: list[Int32] = field(default_factory=list)


class DescribeTopicPartitionsResponseTopic(Struct):
    """Part of DescribeTopicPartitions."""

    error_code: Int16 = field(default=0)
    name: String | None = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = field(default=-0x8000_0000)


class ResponseCursor(Struct):
    """Part of DescribeTopicPartitions."""

    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)


class DescribeTopicPartitionsResponse(
    Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """Part of DescribeTopicPartitions."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: ResponseCursor | None = field(default=None)
