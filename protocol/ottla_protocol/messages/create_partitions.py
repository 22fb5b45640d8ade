"""CreatePartitions, key 37: give topics more partitions (KIP-195).

Version 2 is flexible, 3 throttles (KIP-599).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Message, String, Struct, field


class CreatePartitionsAssignment(Struct):
    """A new partition's replicas, the preferred leader first."""

    broker_ids: list[Int32] = field(default_factory=list)


class CreatePartitionsTopic(Struct):
    """A topic, and its new total of partitions."""

    name: String = field(default="")
    count: Int32 = field(default=0)
    assignments: list[CreatePartitionsAssignment] | None = field(default_factory=list)


class CreatePartitionsRequest(Message, key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    """Topics to grow, or only to validate."""

    topics: list[CreatePartitionsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0)
    validate_only: Bool = field(default=False)


class CreatePartitionsTopicResult(Struct):
    name: String = field(default="")
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)


class CreatePartitionsResponse(Message, key=ApiKey.CREATE_PARTITIONS, versions="0-3", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[CreatePartitionsTopicResult] = field(default_factory=list)
