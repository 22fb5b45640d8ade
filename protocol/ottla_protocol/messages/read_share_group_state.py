"""ReadShareGroupState, key 84: the persisted state of share partitions, for their leaders (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field
from .share_state_records import StateBatch


class PartitionData(Struct):
    partition: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)


class ReadStateData(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class ReadShareGroupStateRequest(Message, key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    group_id: String = field(default="")
    topics: list[ReadStateData] = field(default_factory=list)


class PartitionResult(Struct):
    partition: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    state_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    state_batches: list[StateBatch] = field(default_factory=list)


class ReadStateResult(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionResult] = field(default_factory=list)


class ReadShareGroupStateResponse(Message, key=ApiKey.READ_SHARE_GROUP_STATE, versions="0", flexible="0+"):
    results: list[ReadStateResult] = field(default_factory=list)
