"""AlterPartition, key 56: a leader asks the controller for a change of the in-sync replicas (KIP-497).

Version 1+ has the recovery state (KIP-704), 2+ topic ids in place of names, 3+ the brokers' epochs (KIP-903). All
versions are flexible. Kafka: ``AlterPartitionRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, String, Struct, Uuid, field


class BrokerState(Struct):
    """A replica, and the epoch of the broker that it was seen in sync with."""

    broker_id: Int32 = field("3+", default=0)
    broker_epoch: Int64 = field("3+", default=-1)


class PartitionData(Struct):
    """A partition's new in-sync replicas; the partition epoch is that of the state that they replace."""

    partition_index: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    new_isr: list[Int32] = field("0-2", default_factory=list)
    new_isr_with_epochs: list[BrokerState] = field("3+", default_factory=list)
    leader_recovery_state: Int8 = field("1+", default=0)
    partition_epoch: Int32 = field(default=0)


class TopicData(Struct):
    topic_name: String = field("0-1", default="", ignorable=True)
    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(default_factory=list)


class AlterPartitionRequest(Message, key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    """Changes, by the broker that leads the partitions."""

    broker_id: Int32 = field(default=0)
    broker_epoch: Int64 = field(default=-1)
    topics: list[TopicData] = field(default_factory=list)


class ResponsePartitionData(Struct):
    """A partition's state in the controller."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)
    isr: list[Int32] = field(default_factory=list)
    leader_recovery_state: Int8 = field("1+", default=0, ignorable=True)
    partition_epoch: Int32 = field(default=0)


class ResponseTopicData(Struct):
    topic_name: String = field("0-1", default="", ignorable=True)
    topic_id: Uuid = field("2+", default=ZERO_UUID, ignorable=True)
    partitions: list[ResponsePartitionData] = field(default_factory=list)


class AlterPartitionResponse(Message, key=ApiKey.ALTER_PARTITION, versions="0-3", flexible="0+"):
    """The current state, or an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    topics: list[ResponseTopicData] = field(default_factory=list)
