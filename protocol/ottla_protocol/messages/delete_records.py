"""DeleteRecords: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Int64, Message, String, Struct, field


class DeleteRecordsPartition(Struct):
    """Part of DeleteRecords."""

    partition_index: Int32 = field(default=0)
    offset: Int64 = field(default=0)


class DeleteRecordsTopic(Struct):
    """Part of DeleteRecords."""

    name: String = field(default="")
    partitions: list[DeleteRecordsPartition] = field(default_factory=list)


class DeleteRecordsRequest(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """Part of DeleteRecords."""

    topics: list[DeleteRecordsTopic] = field(default_factory=list)
    timeout_ms: Int32 = field(default=0)


class DeleteRecordsPartitionResult(Struct):
    """Part of DeleteRecords."""

    partition_index: Int32 = field(default=0)
    low_watermark: Int64 = field(default=0)
    error_code: Int16 = field(default=0)


class DeleteRecordsTopicResult(Struct):
    """Part of DeleteRecords."""

    name: String = field(default="")
    partitions: list[DeleteRecordsPartitionResult] = field(default_factory=list)


class DeleteRecordsResponse(Message, key=ApiKey.DELETE_RECORDS, versions="0-2", flexible="2+"):
    """Part of DeleteRecords."""

    throttle_time_ms: Int32 = field(default=0)
    topics: list[DeleteRecordsTopicResult] = field(default_factory=list)
