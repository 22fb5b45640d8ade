"""DeleteShareGroupOffsets, key 92: delete the start offsets of topics of an empty share group (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, field


class DeleteShareGroupOffsetsRequestTopic(Struct):
    topic_name: String = field(default="")


class DeleteShareGroupOffsetsRequest(
    Message, key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    group_id: String = field(default="")
    topics: list[DeleteShareGroupOffsetsRequestTopic] = field(default_factory=list)


class DeleteShareGroupOffsetsResponseTopic(Struct):
    topic_name: String = field(default="")
    topic_id: Uuid = field(default=ZERO_UUID)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class DeleteShareGroupOffsetsResponse(
    Message, key=ApiKey.DELETE_SHARE_GROUP_OFFSETS, versions="0", flexible="0+"
):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    responses: list[DeleteShareGroupOffsetsResponseTopic] = field(default_factory=list)
