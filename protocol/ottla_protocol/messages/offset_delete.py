"""OffsetDelete: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    """Part of OffsetDelete."""

    partition_index: Int32 = field(default=0)


class OffsetDeleteRequestTopic(Struct):
    """Part of OffsetDelete."""

    name: String = field(default="")
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


class OffsetDeleteRequest(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    """Part of OffsetDelete."""

    group_id: String = field(default="")
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


class OffsetDeleteResponsePartition(Struct):
    """Part of OffsetDelete."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class OffsetDeleteResponseTopic(Struct):
    """Part of OffsetDelete."""

    name: String = field(default="")
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


class OffsetDeleteResponse(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    """Part of OffsetDelete."""

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
