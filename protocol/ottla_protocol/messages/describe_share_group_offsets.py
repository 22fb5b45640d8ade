"""DescribeShareGroupOffsets, key 90: the start offsets of share groups (KIP-932).

Version 1 adds the lag (KIP-1226).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class DescribeShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class DescribeShareGroupOffsetsRequestGroup(Struct):
    group_id: String = field(default="")
    topics: list[DescribeShareGroupOffsetsRequestTopic] | None = field(default_factory=list)


class DescribeShareGroupOffsetsRequest(
    Message, key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    groups: list[DescribeShareGroupOffsetsRequestGroup] = field(default_factory=list)


class DescribeShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    lag: Int64 = field("1+", default=-1, ignorable=True)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class DescribeShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[DescribeShareGroupOffsetsResponsePartition] = field(default_factory=list)


class DescribeShareGroupOffsetsResponseGroup(Struct):
    group_id: String = field(default="")
    topics: list[DescribeShareGroupOffsetsResponseTopic] = field(default_factory=list)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class DescribeShareGroupOffsetsResponse(
    Message, key=ApiKey.DESCRIBE_SHARE_GROUP_OFFSETS, versions="0-1", flexible="0+"
):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribeShareGroupOffsetsResponseGroup] = field(default_factory=list)
