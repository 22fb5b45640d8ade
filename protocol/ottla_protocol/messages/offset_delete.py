"""OffsetDelete, key 47: drop a group's offsets of topics that it no longer reads (KIP-496).

There is one version, and it is not flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class OffsetDeleteRequestPartition(Struct):
    partition_index: Int32 = field(default=0)


class OffsetDeleteRequestTopic(Struct):
    name: String = field(default="")
    partitions: list[OffsetDeleteRequestPartition] = field(default_factory=list)


class OffsetDeleteRequest(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    group_id: String = field(default="")
    topics: list[OffsetDeleteRequestTopic] = field(default_factory=list)


class OffsetDeleteResponsePartition(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class OffsetDeleteResponseTopic(Struct):
    name: String = field(default="")
    partitions: list[OffsetDeleteResponsePartition] = field(default_factory=list)


class OffsetDeleteResponse(Message, key=ApiKey.OFFSET_DELETE, versions="0"):
    """One result per offset, or an error for all."""

    error_code: Int16 = field(default=0)
    throttle_time_ms: Int32 = field(default=0)
    topics: list[OffsetDeleteResponseTopic] = field(default_factory=list)
