"""ReadShareGroupStateSummary, key 87: the start offsets of share partitions, without their records (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class PartitionData(Struct):
    partition: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)


class ReadStateSummaryData(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class ReadShareGroupStateSummaryRequest(
    Message, key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    group_id: String = field(default="")
    topics: list[ReadStateSummaryData] = field(default_factory=list)


class PartitionResult(Struct):
    partition: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    state_epoch: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    start_offset: Int64 = field(default=0)
    delivery_complete_count: Int32 = field("1+", default=-1, ignorable=True)


class ReadStateSummaryResult(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionResult] = field(default_factory=list)


class ReadShareGroupStateSummaryResponse(
    Message, key=ApiKey.READ_SHARE_GROUP_STATE_SUMMARY, versions="0-1", flexible="0+"
):
    results: list[ReadStateSummaryResult] = field(default_factory=list)
