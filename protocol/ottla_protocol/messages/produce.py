"""Produce: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, Records, String, Struct, field


class PartitionProduceData(Struct):
    """Part of Produce."""

    index: Int32 = field(default=0)
    records: Records | None = field(default=None)


class TopicProduceData(Struct):
    """Part of Produce."""

    name: String = field(default="")
    partition_data: list[PartitionProduceData] = field(default_factory=list)


class ProduceRequest(Message, key=ApiKey.PRODUCE, versions="0-11", flexible="9+"):
    """Part of Produce."""

    transactional_id: String | None = field("3+", default=None)
    acks: Int16 = field(default=0)
    timeout_ms: Int32 = field(default=0)
    topic_data: list[TopicProduceData] = field(default_factory=list)


class BatchIndexAndErrorMessage(Struct):
    """Part of Produce."""

    batch_index: Int32 = field("8+", default=0)
    batch_index_error_message: String | None = field("8+", default=None)


class LeaderIdAndEpoch(Struct):
    """Part of Produce."""

    leader_id: Int32 = field("10+", default=-1)
    leader_epoch: Int32 = field("10+", default=-1)


class PartitionProduceResponse(Struct):
    """Part of Produce."""

    index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    base_offset: Int64 = field(default=0)
    log_append_time_ms: Int64 = field("2+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    record_errors: list[BatchIndexAndErrorMessage] = field("8+", default_factory=list, ignorable=True)
    error_message: String | None = field("8+", default=None, ignorable=True)
    current_leader: LeaderIdAndEpoch = field("10+", default_factory=LeaderIdAndEpoch, tag=0)


class TopicProduceResponse(Struct):
    """Part of Produce."""

    name: String = field(default="")
    partition_responses: list[PartitionProduceResponse] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of Produce."""

    node_id: Int32 = field("10+", default=0)
    host: String = field("10+", default="")
    port: Int32 = field("10+", default=0)
    rack: String | None = field("10+", default=None)


class ProduceResponse(Message, key=ApiKey.PRODUCE, versions="0-11", flexible="9+"):
    """Part of Produce."""

    responses: list[TopicProduceResponse] = field(default_factory=list)
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    node_endpoints: list[NodeEndpoint] = field("10+", default_factory=list, tag=0)
