"""AlterReplicaLogDirs, key 34: move replicas between the broker's log directories (KIP-113).

Version 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class AlterReplicaLogDirTopic(Struct):
    name: String = field(default="")
    partitions: list[Int32] = field(default_factory=list)


class AlterReplicaLogDir(Struct):
    """A directory, and the replicas to move there."""

    path: String = field(default="")
    topics: list[AlterReplicaLogDirTopic] = field(default_factory=list)


class AlterReplicaLogDirsRequest(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    """The directories to move replicas to."""

    dirs: list[AlterReplicaLogDir] = field(default_factory=list)


class AlterReplicaLogDirPartitionResult(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)


class AlterReplicaLogDirTopicResult(Struct):
    topic_name: String = field(default="")
    partitions: list[AlterReplicaLogDirPartitionResult] = field(default_factory=list)


class AlterReplicaLogDirsResponse(Message, key=ApiKey.ALTER_REPLICA_LOG_DIRS, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[AlterReplicaLogDirTopicResult] = field(default_factory=list)
