"""ShareFetch, key 78: acquire records of a share group, and acknowledge earlier ones (KIP-932).

Version 2 adds how strictly the number of records is kept (KIP-1206), and renewed locks (KIP-1222). Version 0 was the
early access of Kafka 4.0, which has another meaning.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int8, Int16, Int32, Int64, Message, Records, String, Struct, Uuid, field


class AcknowledgementBatch(Struct):
    first_offset: Int64 = field(default=0)
    last_offset: Int64 = field(default=0)
    acknowledge_types: list[Int8] = field(default_factory=list)


class FetchPartition(Struct):
    partition_index: Int32 = field(default=0)
    acknowledgement_batches: list[AcknowledgementBatch] = field(default_factory=list)


class FetchTopic(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[FetchPartition] = field(default_factory=list)


class ForgottenTopic(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[Int32] = field(default_factory=list)


class ShareFetchRequest(Message, key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    group_id: String | None = field(default=None)
    member_id: String | None = field(default="")
    share_session_epoch: Int32 = field(default=0)
    max_wait_ms: Int32 = field(default=0)
    min_bytes: Int32 = field(default=0)
    max_bytes: Int32 = field(default=0x7FFFFFFF)
    max_records: Int32 = field(default=0)
    batch_size: Int32 = field(default=0)
    share_acquire_mode: Int8 = field("2+", default=0, ignorable=True)
    is_renew_ack: Bool = field("2+", default=False, ignorable=True)
    topics: list[FetchTopic] = field(default_factory=list)
    forgotten_topics_data: list[ForgottenTopic] = field(default_factory=list)


class LeaderIdAndEpoch(Struct):
    leader_id: Int32 = field(default=0)
    leader_epoch: Int32 = field(default=0)


class AcquiredRecords(Struct):
    first_offset: Int64 = field(default=0)
    last_offset: Int64 = field(default=0)
    delivery_count: Int16 = field(default=0)


class PartitionData(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acknowledge_error_code: Int16 = field(default=0)
    acknowledge_error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)
    records: Records | None = field(default=b"")
    acquired_records: list[AcquiredRecords] = field(default_factory=list)


class ShareFetchableTopicResponse(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class NodeEndpoint(Struct):
    node_id: Int32 = field(default=0)
    host: String = field(default="")
    port: Int32 = field(default=0)
    rack: String | None = field(default=None)


class ShareFetchResponse(Message, key=ApiKey.SHARE_FETCH, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field(default=0)
    responses: list[ShareFetchableTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
