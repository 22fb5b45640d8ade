"""ListOffsets: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Int64, Message, String, Struct, field


class ListOffsetsPartition(Struct):
    """Part of ListOffsets."""

    partition_index: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = field(default=0)
    max_num_offsets: Int32 = field("0", default=1)


class ListOffsetsTopic(Struct):
    """Part of ListOffsets."""

    name: String = field(default="")
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


class ListOffsetsRequest(Message, key=ApiKey.LIST_OFFSETS, versions="0-9", flexible="6+"):
    """Part of ListOffsets."""

    replica_id: Int32 = field(default=0)
    isolation_level: Int8 = field("2+", default=0)
    topics: list[ListOffsetsTopic] = field(default_factory=list)


class ListOffsetsPartitionResponse(Struct):
    """Part of ListOffsets."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    old_style_offsets: list[Int64] = field("0", default_factory=list)
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    """Part of ListOffsets."""

    name: String = field(default="")
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


class ListOffsetsResponse(Message, key=ApiKey.LIST_OFFSETS, versions="0-9", flexible="6+"):
    """Part of ListOffsets."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
