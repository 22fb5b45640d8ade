"""Fetch, key 1: read records from partitions.

Version 3 bounds the whole response, 4 has isolation levels and may carry format 2, 5 has the log's start
offset, 7 has fetch sessions (KIP-227), 9 fences by leader epoch (KIP-320), 10 allows zstd, 11 reads from
the closest replica (KIP-392), 12 is flexible and has diverging epochs (KIP-595), 13 names topics by id
alone (KIP-516), 15 carries the follower's epoch (KIP-903), 16 has the new leader's address (KIP-951), 17
the follower's log directory (KIP-853).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Int8, Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class ReplicaState(Struct):
    """The follower that fetches; -1 for a consumer."""

    replica_id: Int32 = field("15+", default=-1)
    replica_epoch: Int64 = field("15+", default=-1)


class FetchPartition(Struct):
    """A partition to read, the offset, and the most bytes."""

    partition: Int32 = field(default=0)
    current_leader_epoch: Int32 = field("9+", default=-1, ignorable=True)
    """The leader epoch that the reader knows; -1 if none."""
    fetch_offset: Int64 = field(default=0)
    last_fetched_epoch: Int32 = field("12+", default=-1)
    """The epoch of the last record that the follower has."""
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    """Where the follower's log starts; -1 for a consumer."""
    partition_max_bytes: Int32 = field(default=0)
    replica_directory_id: Uuid = field("17+", default=ZERO_UUID, tag=0, ignorable=True)


class FetchTopic(Struct):
    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(Struct):
    topic: String = field("7-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[Int32] = field("7+", default_factory=list)


class FetchRequest(Message, key=ApiKey.FETCH, versions="0-17", flexible="12+"):
    """The partitions to read, how much of them, and how long to wait.

    In a fetch session ``topics`` lists only what changed, and ``forgotten_topics_data`` what to drop.
    """

    cluster_id: String | None = field("12+", default=None, tag=0, ignorable=True)
    replica_id: Int32 = field("0-14", default=-1)
    """The follower that fetches, or -1 for a consumer; ``replica_state`` has it since version 15."""
    replica_state: ReplicaState = field("15+", default_factory=ReplicaState, tag=1)
    max_wait_ms: Int32 = field(default=0)
    """How long the broker may wait for ``min_bytes``."""
    min_bytes: Int32 = field(default=0)
    max_bytes: Int32 = field("3+", default=0x7FFF_FFFF, ignorable=True)
    isolation_level: Int8 = field("4+", default=0, ignorable=True)
    """0: read uncommitted, 1: read committed."""
    session_id: Int32 = field("7+", default=0, ignorable=True)
    session_epoch: Int32 = field("7+", default=-1, ignorable=True)
    """-1: no session, 0: open one."""
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field("7+", default_factory=list)
    rack_id: String = field("11+", default="", ignorable=True)
    """Where the consumer is, for reading from the closest replica."""


class EpochEndOffset(Struct):
    """The last epoch that leader and follower share, and where it ends; -1 where they agree."""

    epoch: Int32 = field("12+", default=-1)
    end_offset: Int64 = field("12+", default=-1)


class LeaderIdAndEpoch(Struct):
    """The partition's leader, as far as this broker knows (KIP-951); -1 if unknown."""

    leader_id: Int32 = field("12+", default=-1)
    leader_epoch: Int32 = field("12+", default=-1)


class SnapshotId(Struct):
    """A snapshot to fetch instead, in KRaft's own log; -1 elsewhere."""

    end_offset: Int64 = field(default=-1)
    epoch: Int32 = field(default=-1)


class AbortedTransaction(Struct):
    """A transaction whose records a reader of committed ones skips, from its first offset on."""

    producer_id: Int64 = field("4+", default=0)
    first_offset: Int64 = field("4+", default=0)


class PartitionData(Struct):
    """A partition's records, whole batches or a cut at the end, and its offsets.

    ``records`` may be any object with a length when encoded in pieces, such as a slice of a file.
    """

    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    high_watermark: Int64 = field(default=0)
    last_stable_offset: Int64 = field("4+", default=-1, ignorable=True)
    """Below it every transaction is decided; -1 before version 4."""
    log_start_offset: Int64 = field("5+", default=-1, ignorable=True)
    diverging_epoch: EpochEndOffset = field("12+", default_factory=EpochEndOffset, tag=0)
    current_leader: LeaderIdAndEpoch = field("12+", default_factory=LeaderIdAndEpoch, tag=1)
    snapshot_id: SnapshotId = field("12+", default_factory=SnapshotId, tag=2)
    aborted_transactions: list[AbortedTransaction] | None = field("4+", default_factory=list, ignorable=True)
    preferred_read_replica: Int32 = field("11+", default=-1)
    """Where to read from instead; -1: here."""
    records: Records | None = field(default=None)


class FetchableTopicResponse(Struct):
    topic: String = field("0-12", default="", ignorable=True)
    topic_id: Uuid = field("13+", default=ZERO_UUID, ignorable=True)
    partitions: list[PartitionData] = field(default_factory=list)


class NodeEndpoint(Struct):
    """The address of a leader named in this response (KIP-951)."""

    node_id: Int32 = field("16+", default=0)
    host: String = field("16+", default="")
    port: Int32 = field("16+", default=0)
    rack: String | None = field("16+", default=None)


class FetchResponse(Message, key=ApiKey.FETCH, versions="0-17", flexible="12+"):
    """The records read; with a session, only partitions with changes."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("7+", default=0, ignorable=True)
    session_id: Int32 = field("7+", default=0)
    responses: list[FetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field("16+", default_factory=list, tag=0)
