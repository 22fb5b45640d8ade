"""AlterShareGroupOffsets, key 91: set the start offsets of an empty share group (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class AlterShareGroupOffsetsRequestPartition(Struct):
    partition_index: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)


class AlterShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field(default="")
    partitions: list[AlterShareGroupOffsetsRequestPartition] = field(default_factory=list)


class AlterShareGroupOffsetsRequest(
    Message, key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    group_id: String = field(default="")
    topics: list[AlterShareGroupOffsetsRequestTopic] = field(default_factory=list)


class AlterShareGroupOffsetsResponsePartition(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class AlterShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[AlterShareGroupOffsetsResponsePartition] = field(default_factory=list)


class AlterShareGroupOffsetsResponse(
    Message, key=ApiKey.ALTER_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    responses: list[AlterShareGroupOffsetsResponseTopic] = field(default_factory=list)
