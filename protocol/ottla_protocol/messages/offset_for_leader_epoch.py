"""OffsetForLeaderEpoch, key 23: where a leader epoch ended, to truncate by (KIP-101).

Version 1 returns the epoch found, 2 fences by the current one (KIP-320), 3 names the replica, 4 is
flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class OffsetForLeaderPartition(Struct):
    """The epoch to look up, and the current one that the reader knows (-1 if none)."""

    partition: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    leader_epoch: Int32 = field(default=0)


class OffsetForLeaderTopic(Struct):
    topic: String = field(default="")
    partitions: list[OffsetForLeaderPartition] = field(default_factory=list)


class OffsetForLeaderEpochRequest(Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"):
    """Partitions, and an epoch for each; replica -2 is a consumer."""

    replica_id: Int32 = field("3+", default=-2, ignorable=True)
    topics: list[OffsetForLeaderTopic] = field(default_factory=list)


class EpochEndOffset(Struct):
    """The greatest epoch up to the requested one, and the offset where the next begins; -1 for none."""

    error_code: Int16 = field(default=0)
    partition: Int32 = field(default=0)
    leader_epoch: Int32 = field("1+", default=-1, ignorable=True)
    end_offset: Int64 = field(default=-1)


class OffsetForLeaderTopicResult(Struct):
    topic: String = field(default="")
    partitions: list[EpochEndOffset] = field(default_factory=list)


class OffsetForLeaderEpochResponse(
    Message, key=ApiKey.OFFSET_FOR_LEADER_EPOCH, versions="0-4", flexible="4+"
):
    """The ends of the epochs."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[OffsetForLeaderTopicResult] = field(default_factory=list)
