"""LeaveGroup: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class MemberIdentity(Struct):
    """Part of LeaveGroup."""

    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    reason: String | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """Part of LeaveGroup."""

    group_id: String = field(default="")
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default_factory=list)


class MemberResponse(Struct):
    """Part of LeaveGroup."""

    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default="")
    error_code: Int16 = field("3+", default=0)


class LeaveGroupResponse(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """Part of LeaveGroup."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[MemberResponse] = field("3+", default_factory=list)
