"""DeleteRecords, key 21: cut partitions off at their start (KIP-107).

Version 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class DeleteRecordsPartition(Struct):
    """Records below this offset are deleted; -1 means the high watermark."""

    partition_index: Int32 = field(default=0)
    offset: Int64 = field(default=0)


class DeleteRecordsTopic(Struct):
    name: String = field(default="")
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


class DeleteRecordsRequest(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """The new start of each partition."""

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0)


class DeleteRecordsPartitionResult(Struct):
    """The log's start offset, -1 with an error."""

    partition_index: Int32 = field(default=0)
    low_watermark: Int64 = field(default=0)
    error_code: Int16 = field(default=0)


class DeleteRecordsTopicResult(Struct):
    name: String = field(default="")
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


class DeleteRecordsResponse(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """The start of each partition."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
