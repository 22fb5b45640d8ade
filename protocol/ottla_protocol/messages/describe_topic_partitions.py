"""DescribeTopicPartitions, key 75: topics with their partitions, a page at a time (KIP-966).

There is one version, and it is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field


class TopicRequest(Struct):
    name: String = field(default="")


class Cursor(Struct):
    """The first partition of the requested page."""

    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)


class DescribeTopicPartitionsRequest(
    Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """The topics, the most partitions in the response, and where to continue."""

    topics: list[TopicRequest] = field(default_factory=list)
    response_partition_limit: Int32 = field(default=2000)
    cursor: Cursor | None = field(default=None)


class DescribeTopicPartitionsResponsePartition(Struct):
    """Leader (-1: none), replicas, those in sync, and those that may still be elected (null: not known)."""

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
    error_code: Int16 = field(default=0)
    name: String | None = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    is_internal: Bool = field(default=False)
    partitions: list[DescribeTopicPartitionsResponsePartition] = field(default_factory=list)
    topic_authorized_operations: Int32 = field(default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""


class ResponseCursor(Struct):
    """The first partition of the page that comes next."""

    topic_name: String = field(default="")
    partition_index: Int32 = field(default=0)


class DescribeTopicPartitionsResponse(
    Message, key=ApiKey.DESCRIBE_TOPIC_PARTITIONS, versions="0", flexible="0+"
):
    """A page; the cursor is null on the last one."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DescribeTopicPartitionsResponseTopic] = field(default_factory=list)
    next_cursor: ResponseCursor | None = field(default=None)
