"""WriteShareGroupState, key 85: changes of the persisted state of share partitions (KIP-932).

Version 1 adds how many records from the start offset on need no delivery (KIP-1226).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field
from .share_state_records import StateBatch


class PartitionData(Struct):
    partition: Int32 = field(default=0)
    state_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)
    state_batches: list[StateBatch] = field(default_factory=list)


class WriteStateData(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class WriteShareGroupStateRequest(Message, key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"):
    group_id: String = field(default="")
    topics: list[WriteStateData] = field(default_factory=list)


class PartitionResult(Struct):
    partition: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class WriteStateResult(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionResult] = field(default_factory=list)


class WriteShareGroupStateResponse(
    Message, key=ApiKey.WRITE_SHARE_GROUP_STATE, versions="0-1", flexible="0+"
):
    results: list[WriteStateResult] = field(default_factory=list)
