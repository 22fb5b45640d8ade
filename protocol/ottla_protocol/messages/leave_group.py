"""LeaveGroup, key 13: leave a classic group.

Version 3 lets an administrator remove several members (KIP-345), 4 is flexible, 5 gives a reason (KIP-800).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class MemberIdentity(Struct):
    """A member by its id, or a static one by its instance id."""

    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default=None)
    reason: String | None = field("5+", default=None, ignorable=True)


class LeaveGroupRequest(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    """One member up to version 2, several from 3 on."""

    group_id: String = field(default="")
    member_id: String = field("0-2", default="")
    members: list[MemberIdentity] = field("3+", default_factory=list)


class MemberResponse(Struct):
    member_id: String = field("3+", default="")
    group_instance_id: String | None = field("3+", default="")
    error_code: Int16 = field("3+", default=0)


class LeaveGroupResponse(Message, key=ApiKey.LEAVE_GROUP, versions="0-5", flexible="4+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    members: list[MemberResponse] = field("3+", default_factory=list)
