"""OffsetForLeaderEpoch: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class OffsetForLeaderPartition(Struct):
    """Part of OffsetForLeaderEpoch."""

    partition: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = field(default=0)


class OffsetForLeaderTopic(Struct):
    """Part of OffsetForLeaderEpoch."""

    topic: String = field(default="")
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


class OffsetForLeaderEpochRequest(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    """Part of OffsetForLeaderEpoch."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


class EpochEndOffset(Struct):
    """Part of OffsetForLeaderEpoch."""

    error_code: Int16 = field(default=0)
    partition: Int32 = field(default=0)
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    """Part of OffsetForLeaderEpoch."""

    topic: String = field(default="")
    partitions: list[EpochEndOffset] = field(default_factory=list)


class OffsetForLeaderEpochResponse(
    Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"
):
    """Part of OffsetForLeaderEpoch."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
