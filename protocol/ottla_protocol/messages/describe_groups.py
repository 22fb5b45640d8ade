"""DescribeGroups, key 15: classic groups with their members.

Version 3 returns authorized operations (KIP-430), 4 static members (KIP-345), 5 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Bytes, Int16, Int32, Message, String, Struct, field


class DescribeGroupsRequest(Message, key=ApiKey.DESCRIBE_GROUPS, versions="0-5", flexible="5+"):
    groups: list[String] = field(default_factory=list)
    include_authorized_operations: Bool = field("3+", default=False)


class DescribedGroupMember(Struct):
    """A member, with its metadata and assignment as it sent and got them."""

    member_id: String = field(default="")
    group_instance_id: String | None = field("4+", default=None, ignorable=True)
    client_id: String = field(default="")
    client_host: String = field(default="")
    member_metadata: Bytes = field(default=b"")
    member_assignment: Bytes = field(default=b"")


class DescribedGroup(Struct):
    """A group's state, the protocol it chose, and its members."""

    error_code: Int16 = field(default=0)
    group_id: String = field(default="")
    group_state: String = field(default="")
    protocol_type: String = field(default="")
    protocol_data: String = field(default="")
    members: list[DescribedGroupMember] = field(default_factory=list)
    authorized_operations: Int32 = field("3+", default=-0x8000_0000)
    """One bit per operation; -2^31 if not requested."""


class DescribeGroupsResponse(Message, key=ApiKey.DESCRIBE_GROUPS, versions="0-5", flexible="5+"):
    """The groups, in the order of the request."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    groups: list[DescribedGroup] = field(default_factory=list)
