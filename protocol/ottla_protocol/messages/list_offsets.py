"""ListOffsets, key 2: find offsets by time.

Version 0 answers with a list of segment starts, from 1 on with one offset; 2 has isolation levels, 4 leader
epochs (KIP-320), 5 a new error, 6 is flexible, 7 finds the greatest timestamp (KIP-734), 8 the local log's
start (KIP-405), 9 the last tiered offset (KIP-1005).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Int64, Message, String, Struct, field


class ListOffsetsPartition(Struct):
    """A partition, and a time in milliseconds to look up.

    Or: -1 latest, -2 earliest, -3 greatest timestamp, -4 earliest local, -5 latest tiered.
    """

    partition_index: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("4+", default=-1, ignorable=True)
    timestamp: Int64 = field(default=0)
    max_num_offsets: Int32 = field("0", default=1)


class ListOffsetsTopic(Struct):
    name: String = field(default="")
    partitions: list[ListOffsetsPartition] = field(default_factory=list)


class ListOffsetsRequest(Message, key=ApiKey.LIST_OFFSETS, versions="0-9", flexible="6+"):
    """Partitions, and a time for each."""

    replica_id: Int32 = field(default=0)
    """The follower, or -1 for a consumer."""
    isolation_level: Int8 = field("2+", default=0)
    """0: read uncommitted, 1: read committed, up to the last stable offset."""
    topics: list[ListOffsetsTopic] = field(default_factory=list)


class ListOffsetsPartitionResponse(Struct):
    """The first offset with at least the requested timestamp; -1 for none."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    old_style_offsets: list[Int64] = field("0", default_factory=list)
    timestamp: Int64 = field("1+", default=-1)
    offset: Int64 = field("1+", default=-1)
    leader_epoch: Int32 = field("4+", default=-1)


class ListOffsetsTopicResponse(Struct):
    name: String = field(default="")
    partitions: list[ListOffsetsPartitionResponse] = field(default_factory=list)


class ListOffsetsResponse(Message, key=ApiKey.LIST_OFFSETS, versions="0-9", flexible="6+"):
    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    topics: list[ListOffsetsTopicResponse] = field(default_factory=list)
