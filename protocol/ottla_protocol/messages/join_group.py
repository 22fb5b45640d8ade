"""JoinGroup: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Bytes, Int16, Int32, Message, String, Struct, field


class JoinGroupRequestProtocol(Struct):
    """Part of JoinGroup."""

    name: String = field(default="")
    metadata: Bytes = field(default=b"")


class JoinGroupRequest(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """Part of JoinGroup."""

    group_id: String = field(default="")
    session_timeout_ms: Int32 = field(default=0)
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    member_id: String = field(default="")
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String = field(default="")
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: String | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """Part of JoinGroup."""

    member_id: String = field(default="")
    group_instance_id: String | None = field("5+", default=None, ignorable=True)
    metadata: Bytes = field(default=b"")


class JoinGroupResponse(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """Part of JoinGroup."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    protocol_name: String | None = field(default="", nullable="7+")
    leader: String = field(default="")
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field(default="")
    members: list[JoinGroupResponseMember] = field(default_factory=list)
