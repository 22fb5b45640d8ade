"""DescribeLogDirs, key 35: the partitions in a broker's log directories, and their sizes (KIP-113).

Version 2 is flexible, 3 has an error for the whole, 4 the volume's size (KIP-827).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Int64, Message, String, Struct, field


class DescribableLogDirTopic(Struct):
    topic: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class DescribeLogDirsRequest(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    """The partitions; null means all."""

    topics: list[DescribableLogDirTopic] | None = field(default_factory=list)


class DescribeLogDirsPartition(Struct):
    """Bytes on disk, and the log's lag in records."""

    partition_index: Int32 = field(default=0)
    partition_size: Int64 = field(default=0)
    offset_lag: Int64 = field(default=0)
    is_future_key: Bool = field(default=False)
    """The log is being moved here from another directory."""


class DescribeLogDirsTopic(Struct):
    name: String = field(default="")
    partitions: list[DescribeLogDirsPartition] = field(default_factory=list)


class DescribeLogDirsResult(Struct):
    """A directory with its partitions; volume sizes in bytes, -1 if unknown."""

    error_code: Int16 = field(default=0)
    log_dir: String = field(default="")
    topics: list[DescribeLogDirsTopic] = field(default_factory=list)
    total_bytes: Int64 = field("4+", default=-1, ignorable=True)
    usable_bytes: Int64 = field("4+", default=-1, ignorable=True)


class DescribeLogDirsResponse(Message, key=ApiKey.DESCRIBE_LOG_DIRS, versions="0-4", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field("3+", default=0, ignorable=True)
    results: list[DescribeLogDirsResult] = field(default_factory=list)
