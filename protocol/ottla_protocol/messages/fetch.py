"""Fetch: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class ReplicaState(Struct):
    """Part of Fetch."""

    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchPartition(Struct):
    """Part of Fetch."""

    partition: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    fetch_offset: Int64 = field(default=0)
    last_fetched_epoch: Int32 = field("12+", default=-1)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    partition_max_bytes: Int32 = field(default=0)
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)


class FetchTopic(Struct):
    """Part of Fetch."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(Struct):
    """Part of Fetch."""

    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32] = field("7+", default_factory=list)


class FetchRequest(Message, key=ApiKey.FETCH, versions="0-17", flexible="12+"):
    """Part of Fetch."""

    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    replica_state: ReplicaState = field("15+", default_factory=ReplicaState, tag=1)
    max_wait_ms: Int32 = field(default=0)
    min_bytes: Int32 = field(default=0)
    max_bytes: Int32 = field("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default_factory=list)
    rack_id: String = field("11+", default="", ignorable=True)


class EpochEndOffset(Struct):
    """Part of Fetch."""

    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """Part of Fetch."""

    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    """Part of Fetch."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    """Part of Fetch."""

    producer_id: Int64 = field("4+", default=0)
    first_offset: Int64 = field("4+", default=0)


class PartitionData(Struct):
    """Part of Fetch."""

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    high_watermark: Int64 = field(default=0)
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", default_factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = field("12+", default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", default_factory=list, ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    records: Records | None = field(default=None)


class FetchableTopicResponse(Struct):
    """Part of Fetch."""

    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(default_factory=list)


class NodeEndpoint(Struct):
    """Part of Fetch."""

    node_id: Int32 = field("16+", default=0)
    host: String = field("16+", default="")
    port: Int32 = field("16+", default=0)
    rack: String | None = field("16+", default=None)


class FetchResponse(Message, key=ApiKey.FETCH, versions="0-17", flexible="12+"):
    """Part of Fetch."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field("16+", default_factory=list, tag=0)
