"""AlterPartitionReassignments, key 45: move partitions to other replicas, or stop moving them (KIP-455).

There is one version, and it is flexible. Kafka: ``AlterPartitionReassignmentsRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class ReassignablePartition(Struct):
    """A partition and its new replicas, the preferred leader first; null cancels a reassignment."""

    partition_index: Int32 = field(default=0)
    replicas: list[Int32] | None = field(default=None)


class ReassignableTopic(Struct):
    name: String = field(default="")
    partitions: list[ReassignablePartition] = field(default_factory=list)


class AlterPartitionReassignmentsRequest(
    Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """Reassignments to start or cancel."""

    timeout_ms: Int32 = field(default=60000)
    topics: list[ReassignableTopic] = field(default_factory=list)


class ReassignablePartitionResponse(Struct):
    """NONE if started, or INVALID_REPLICA_ASSIGNMENT or NO_REASSIGNMENT_IN_PROGRESS."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")


class ReassignableTopicResponse(Struct):
    name: String = field(default="")
    partitions: list[ReassignablePartitionResponse] = field(default_factory=list)


class AlterPartitionReassignmentsResponse(
    Message, key=ApiKey.ALTER_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """One result per partition. A started reassignment takes time; ListPartitionReassignments lists it."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    responses: list[ReassignableTopicResponse] = field(default_factory=list)
