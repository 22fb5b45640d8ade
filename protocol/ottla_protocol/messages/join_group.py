"""JoinGroup, key 11: enter a classic group, and wait for the others.

Version 1 has a rebalance timeout of its own, 4 makes a new member come back with the id that it was given
(KIP-394), 5 has static members (KIP-345), 6 is flexible, 7 returns the protocol type (KIP-559), 8 gives a
reason (KIP-800), 9 lets a returning static leader skip the assignment (KIP-814).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Bool, Bytes, Int16, Int32, Message, String, Struct, field


class JoinGroupRequestProtocol(Struct):
    """An assignment strategy, and the member's metadata for it (``consumer_protocol``)."""

    name: String = field(default="")
    metadata: Bytes = field(default=b"")


class JoinGroupRequest(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """A member, and the protocols that it supports.

    ``member_id`` is empty at first; ``group_instance_id`` makes a member static. ``protocols`` are in order
    of preference.
    """

    group_id: String = field(default="")
    session_timeout_ms: Int32 = field(default=0)
    """The time without a heartbeat after which the member is removed."""
    rebalance_timeout_ms: Int32 = field("1+", default=-1, ignorable=True)
    """How long others wait for the member to join again; -1: the session timeout."""
    member_id: String = field(default="")
    group_instance_id: String | None = field("5+", default=None)
    protocol_type: String = field(default="")
    protocols: list[JoinGroupRequestProtocol] = field(default_factory=list)
    reason: String | None = field("8+", default=None, ignorable=True)


class JoinGroupResponseMember(Struct):
    """A member, and its metadata for the protocol that was chosen."""

    member_id: String = field(default="")
    group_instance_id: String | None = field("5+", default=None, ignorable=True)
    metadata: Bytes = field(default=b"")


class JoinGroupResponse(Message, key=ApiKey.JOIN_GROUP, versions="0-9", flexible="6+"):
    """The new generation; its leader also gets all members, to assign partitions to them."""

    throttle_time_ms: Int32 = field("2+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    generation_id: Int32 = field(default=-1)
    protocol_type: String | None = field("7+", default=None, ignorable=True)
    protocol_name: String | None = field(default="", nullable="7+")
    leader: String = field(default="")
    skip_assignment: Bool = field("9+", default=False)
    member_id: String = field(default="")
    members: list[JoinGroupResponseMember] = field(default_factory=list)
