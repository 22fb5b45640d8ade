"""ShareAcknowledge, key 79: acknowledge acquired records of a share group (KIP-932).

Version 2 adds renewed locks (KIP-1222).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import ZERO_UUID, Bool, Int16, Int32, Message, String, Struct, Uuid, field
from .share_fetch import FetchTopic, LeaderIdAndEpoch, NodeEndpoint


class ShareAcknowledgeRequest(Message, key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    group_id: String | None = field(default=None)
    member_id: String | None = field(default="")
    share_session_epoch: Int32 = field(default=0)
    is_renew_ack: Bool = field("2+", default=False)
    topics: list[FetchTopic] = field(default_factory=list)


class PartitionData(Struct):
    partition_index: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    current_leader: LeaderIdAndEpoch = field(default_factory=LeaderIdAndEpoch)


class ShareAcknowledgeTopicResponse(Struct):
    topic_id: Uuid = field(default=ZERO_UUID)
    partitions: list[PartitionData] = field(default_factory=list)


class ShareAcknowledgeResponse(Message, key=ApiKey.SHARE_ACKNOWLEDGE, versions="1-2", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    acquisition_lock_timeout_ms: Int32 = field("2+", default=0, ignorable=True)
    responses: list[ShareAcknowledgeTopicResponse] = field(default_factory=list)
    node_endpoints: list[NodeEndpoint] = field(default_factory=list)
