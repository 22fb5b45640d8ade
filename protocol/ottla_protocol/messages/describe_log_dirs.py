"""DescribeLogDirs: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class DescribableLogDirTopic(Struct):
    """Part of DescribeLogDirs."""

    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class DescribeLogDirsRequest(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    """Part of DescribeLogDirs."""

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


class DescribeLogDirsPartition(Struct):
    """Part of DescribeLogDirs."""

    partition_index: Int32 = field(default=0)
    partition_size: Int64 = field(default=0)
    offset_lag: Int64 = field(default=0)
    is_future_key: Bool = field(default=False)


class DescribeLogDirsTopic(Struct):
    """Part of DescribeLogDirs."""

    name: String = field(default="")
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


class DescribeLogDirsResult(Struct):
    """Part of DescribeLogDirs."""

    error_code: Int16 = field(default=0)
    log_dir: String = field(default="")
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    """Part of DescribeLogDirs."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(default_factory=list)
