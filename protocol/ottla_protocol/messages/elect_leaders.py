"""ElectLeaders, key 43: have the preferred replica lead, or any replica at the price of lost records (KIP-460).

Version 0 knows preferred elections alone; 1+ has the type. Version 2 is flexible. Kafka: ``ElectLeadersRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class TopicPartitions(Struct):
    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class ElectLeadersRequest(Message, key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    """Election type 0 is preferred, 1 unclean. No partitions at all (null) stands for every one."""

    election_type: Int8 = field("1+", default=0)
    topic_partitions: list[TopicPartitions] | None = field(default_factory=list)
    timeout_ms: Int32 = field(default=60000)


class PartitionResult(Struct):
    """ELECTION_NOT_NEEDED where the leader is the right one already."""

    partition_id: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")


class ReplicaElectionResult(Struct):
    topic: String = field(default="")
    partition_result: list[PartitionResult] = field(default_factory=list)


class ElectLeadersResponse(Message, key=ApiKey.ELECT_LEADERS, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("1+", default=0)
    replica_election_results: list[ReplicaElectionResult] = field(default_factory=list)
