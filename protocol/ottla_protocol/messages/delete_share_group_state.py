"""DeleteShareGroupState, key 86: delete the persisted state of share partitions (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Message, String, Struct, Uuid, field


class PartitionData(Struct):
    partition: Int32 = field(default=0)


class DeleteStateData(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class DeleteShareGroupStateRequest(Message, key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    group_id: String = field(default="")
    topics: list[DeleteStateData] = field(default_factory=list)


class PartitionResult(Struct):
    partition: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class DeleteStateResult(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionResult] = field(default_factory=list)


class DeleteShareGroupStateResponse(
    Message, key=ApiKey.DELETE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    results: list[DeleteStateResult] = field(default_factory=list)
