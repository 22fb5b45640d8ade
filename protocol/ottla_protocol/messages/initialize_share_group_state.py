"""InitializeShareGroupState, key 83: begin the persisted state of share partitions (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class PartitionData(Struct):
    partition: Int32 = field(default=0)
    state_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)


class InitializeStateData(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class InitializeShareGroupStateRequest(
    Message, key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    group_id: String = field(default="")
    topics: list[InitializeStateData] = field(default_factory=list)


class PartitionResult(Struct):
    partition: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class InitializeStateResult(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionResult] = field(default_factory=list)


class InitializeShareGroupStateResponse(
    Message, key=ApiKey.INITIALIZE_SHARE_GROUP_STATE, versions="0", flexible="0+"
):
    results: list[InitializeStateResult] = field(default_factory=list)
