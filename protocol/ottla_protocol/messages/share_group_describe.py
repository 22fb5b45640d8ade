"""ShareGroupDescribe, key 77: share groups with their members and assignments (KIP-932)."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Int16, Int32, Message, String, Struct, field
from .consumer_group_describe import Assignment


class ShareGroupDescribeRequest(Message, key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    group_ids: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field(default=False)


class Member(Struct):
    member_id: String = field(default="")
    rack_id: String | None = field(default=None)
    member_epoch: Int32 = field(default=0)
    client_id: String = field(default="")
    client_host: String = field(default="")
    subscribed_topic_names: list[String] = field(default_factory=list)
    assignment: Assignment = field(default_factory=Assignment)


class DescribedGroup(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default=None)
    group_id: String = field(default="")
    group_state: String = field(default="")
    group_epoch: Int32 = field(default=0)
    assignment_epoch: Int32 = field(default=0)
    assignor_name: String = field(default="")
    members: list[Member] = field(default_factory=list)
    authorized_operations: Int32 = field(default=-2147483648)


class ShareGroupDescribeResponse(Message, key=ApiKey.SHARE_GROUP_DESCRIBE, versions="1", flexible="0+"):
    throttle_time_ms: Int32 = field(default=0)
    groups: list[DescribedGroup] = field(default_factory=list)
