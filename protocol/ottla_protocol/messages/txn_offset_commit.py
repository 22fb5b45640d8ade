"""TxnOffsetCommit, key 28: offsets of a group that count once their transaction commits (KIP-98).

Version 2 has leader epochs (KIP-320); 3 has the member and its generation (KIP-447) and is flexible; 4 has a new error;
5 makes the group part of the transaction (KIP-890).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class TxnOffsetCommitRequestPartition(Struct):
    """The next offset to read, with a text of the consumer's choice."""

    partition_index: Int32 = field(default=0)
    committed_offset: Int64 = field(default=0)
    committed_leader_epoch: Int32 = field("2+", default=-1, ignorable=True)
    committed_metadata: String | None = field(default="")


class TxnOffsetCommitRequestTopic(Struct):
    name: String = field(default="")
    partitions: list[TxnOffsetCommitRequestPartition] = field(default_factory=list)


class TxnOffsetCommitRequest(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    """From a member of the group or, with generation -1, from outside."""

    transactional_id: String = field(default="")
    group_id: String = field(default="")
    producer_id: Int64 = field(default=0)
    producer_epoch: Int16 = field(default=0)
    generation_id: Int32 = field("3+", default=-1)
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    topics: list[TxnOffsetCommitRequestTopic] = field(default_factory=list)


class TxnOffsetCommitResponsePartition(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class TxnOffsetCommitResponseTopic(Struct):
    name: String = field(default="")
    partitions: list[TxnOffsetCommitResponsePartition] = field(default_factory=list)


class TxnOffsetCommitResponse(Message, key=ApiKey.TXN_OFFSET_COMMIT, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TxnOffsetCommitResponseTopic] = field(default_factory=list)
