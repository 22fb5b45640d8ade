"""SyncGroup, key 14: hand out, or wait for, a classic group's assignment.

Version 3 has static members (KIP-345), 4 is flexible, 5 checks protocol type and name (KIP-559).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bytes, Int16, Int32, Message, String, Struct, field


class SyncGroupRequestAssignment(Struct):
    """The assignment of one member (``consumer_protocol``)."""

    member_id: String = field(default="")
    assignment: Bytes = field(default=b"")


class SyncGroupRequest(Message, key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """From the leader with everyone's assignment, from the others with none."""

    group_id: String = field(default="")
    generation_id: Int32 = field(default=0)
    member_id: String = field(default="")
    group_instance_id: String | None = field("3+", default=None)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignments: list[SyncGroupRequestAssignment] = field(default_factory=list)


class SyncGroupResponse(Message, key=ApiKey.SYNC_GROUP, versions="0-5", flexible="4+"):
    """The member's own assignment (``consumer_protocol``)."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    protocol_type: String | None = field("5+", default=None, ignorable=True)
    protocol_name: String | None = field("5+", default=None, ignorable=True)
    assignment: Bytes = field(default=b"")
