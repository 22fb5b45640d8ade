"""ListPartitionReassignments, key 46: the reassignments that are going on (KIP-455).

There is one version, and it is flexible. Kafka: ``ListPartitionReassignmentsRequest``.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class ListPartitionReassignmentsTopics(Struct):
    name: String = field(default="")
    partition_indexes: list[Int32] = field(default_factory=list)


class ListPartitionReassignmentsRequest(
    Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """The partitions to look at; null: all."""

    timeout_ms: Int32 = field(default=60000)
    topics: list[ListPartitionReassignmentsTopics] | None = field(default=None)


class OngoingPartitionReassignment(Struct):
    """A partition's replicas, and which of them come and go."""

    partition_index: Int32 = field(default=0)
    replicas: list[Int32] = field(default_factory=list)
    adding_replicas: list[Int32] = field(default_factory=list)
    removing_replicas: list[Int32] = field(default_factory=list)


class OngoingTopicReassignment(Struct):
    name: String = field(default="")
    partitions: list[OngoingPartitionReassignment] = field(default_factory=list)


class ListPartitionReassignmentsResponse(
    Message, key=ApiKey.LIST_PARTITION_REASSIGNMENTS, versions="0", flexible="0+"
):
    """The requested partitions that are being reassigned."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    topics: list[OngoingTopicReassignment] = field(default_factory=list)
