"""Produce, key 0: append records to partitions.

Versions 0-2 carried the message formats 0 and 1, 3 brought format 2 and transactional ids, 4 and 6 changed
nothing on the wire, 5 returns the log's start offset, 7 allows zstd, 8 names the records at fault, 9 is
flexible, 10 returns the new leader to a client of the wrong broker (KIP-951), 11 has a new error for
transactions, 12 makes partitions part of them (KIP-890).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, Records, String, Struct, field


class PartitionProduceData(Struct):
    """A partition's record batches, back to back; from version 3 on exactly one."""

    index: Int32 = field(default=0)
    records: Records | None = field(default=None)


class TopicProduceData(Struct):
    name: String = field(default="")
    partition_data: list[PartitionProduceData] = field(default_factory=list)


class ProduceRequest(Message, key=ApiKey.PRODUCE, versions="0-12", flexible="9+"):
    """Records for partitions of topics.

    With ``acks`` 0 nothing is answered, with 1 the leader's append is, with -1 that of all in-sync
    replicas.
    """

    transactional_id: String | None = field("3+", default=None)
    """Null outside a transaction."""
    acks: Int16 = field(default=0)
    timeout_ms: Int32 = field(default=0)
    """How long the in-sync replicas may take."""
    topic_data: list[TopicProduceData] = field(default_factory=list)


class BatchIndexAndErrorMessage(Struct):
    """A record that made its batch be refused, by its place in the batch."""

    batch_index: Int32 = field("8+", default=0)
    batch_index_error_message: String | None = field("8+", default=None)


class LeaderIdAndEpoch(Struct):
    """The partition's leader, as far as this broker knows (KIP-951); -1 if unknown."""

    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    """The offset of a partition's records, or an error."""

    index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    base_offset: Int64 = field(default=0)
    """The offset of the first record, -1 with an error."""
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    """-1 where the producer's own timestamps stay (CreateTime)."""
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default_factory=list, ignorable=True)
    error_message: String | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default_factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    name: String = field(default="")
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


class NodeEndpoint(Struct):
    """The address of a leader named in this response (KIP-951)."""

    node_id: Int32 = field("10+", default=0)
    host: String = field("10+", default="")
    port: Int32 = field("10+", default=0)
    rack: String | None = field("10+", default=None)


class ProduceResponse(Message, key=ApiKey.PRODUCE, versions="0-12", flexible="9+"):
    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default_factory=list, tag=0)
