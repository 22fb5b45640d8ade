"""ShareGroupHeartbeat, key 76: join, stay in and leave a share group (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, field
from .consumer_group_heartbeat import HeartbeatAssignment


class ShareGroupHeartbeatRequest(Message, key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    group_id: String = field(default="")
    member_id: String = field(default="")
    member_epoch: Int32 = field(default=0)
    rack_id: String | None = field(default=None)
    subscribed_topic_names: list[String] | None = field(default=None)


class ShareGroupHeartbeatResponse(Message, key=ApiKey.SHARE_GROUP_HEARTBEAT, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    member_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    heartbeat_interval_ms: Int32 = field(default=0)
    assignment: HeartbeatAssignment | None = field(default=None)
