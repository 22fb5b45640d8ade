"""DescribeProducers, key 61: the idempotent producers that partitions remember (KIP-664).

There is one version, and it is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class TopicRequest(Struct):
    name: String = field(default="")
    partition_indexes: list[Int32] = field(default_factory=list)


class DescribeProducersRequest(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    topics: list[TopicRequest] = field(default_factory=list)


class ProducerState(Struct):
    """A producer's last sequence number and timestamp, and its open transaction; -1 for none."""

    producer_id: Int64 = field(default=0)
    producer_epoch: Int32 = field(default=0)
    last_sequence: Int32 = field(default=-1)
    last_timestamp: Int64 = field(default=-1)
    coordinator_epoch: Int32 = field(default=0)
    current_txn_start_offset: Int64 = field(default=-1)


class PartitionResponse(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    active_producers: list[ProducerState] = field(default_factory=list)


class TopicResponse(Struct):
    name: String = field(default="")
    partitions: list[PartitionResponse] = field(default_factory=list)


class DescribeProducersResponse(Message, key=ApiKey.DESCRIBE_PRODUCERS, versions="0", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    topics: list[TopicResponse] = field(default_factory=list)
