"""OffsetCommit: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class OffsetCommitRequestPartition(Struct):
    """Part of OffsetCommit."""

    partition_index: Int32 = field(default=0)
    committed_offset: Int64 = field(default=0)
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    commit_timestamp: Int64 = field("1", default=-1)
    committed_metadata: String | None = field(default="")


class OffsetCommitRequestTopic(Struct):
    """Part of OffsetCommit."""

    name: String = field(default="")
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


class OffsetCommitRequest(Message, key=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    """Part of OffsetCommit."""

    group_id: String = field(default="")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", default="", ignorable=True)
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


class OffsetCommitResponsePartition(Struct):
    """Part of OffsetCommit."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class OffsetCommitResponseTopic(Struct):
    """Part of OffsetCommit."""

    name: String = field(default="")
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


class OffsetCommitResponse(Message, key=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    """Part of OffsetCommit."""

    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
