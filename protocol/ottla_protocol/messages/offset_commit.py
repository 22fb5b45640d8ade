"""OffsetCommit, key 8: store a group's offsets.

Version 0 stored them in ZooKeeper; 1 has generation, member and a timestamp each, 2-4 a retention time, 6
leader epochs (KIP-320), 7 static members (KIP-345), 8 is flexible, 9 is used by server-side assignment as
well (KIP-848).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class OffsetCommitRequestPartition(Struct):
    """The next offset to read, with a text of the consumer's choice."""

    partition_index: Int32 = field(default=0)
    committed_offset: Int64 = field(default=0)
    committed_leader_epoch: Int32 = field("6+", default=-1, ignorable=True)
    commit_timestamp: Int64 = field("1", default=-1)
    """Milliseconds; -1: when the broker takes it."""
    committed_metadata: String | None = field(default="")


class OffsetCommitRequestTopic(Struct):
    name: String = field(default="")
    partitions: list[OffsetCommitRequestPartition] = field(default_factory=list)


class OffsetCommitRequest(Message, key=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    """Offsets of a group, from one of its members or, with generation -1, from outside."""

    group_id: String = field(default="")
    generation_id_or_member_epoch: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field("1+", default="", ignorable=True)
    group_instance_id: String | None = field("7+", default=None)
    retention_time_ms: Int64 = field("2-4", default=-1, ignorable=True)
    """-1: as long as the broker keeps offsets."""
    topics: list[OffsetCommitRequestTopic] = field(default_factory=list)


class OffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class OffsetCommitResponseTopic(Struct):
    name: String = field(default="")
    partitions: list[OffsetCommitResponsePartition] = field(default_factory=list)


class OffsetCommitResponse(Message, key=ApiKey.OFFSET_COMMIT, versions="0-9", flexible="8+"):
    throttle_time_ms: Int32 = field("3+", default=0, ignorable=True)
    topics: list[OffsetCommitResponseTopic] = field(default_factory=list)
