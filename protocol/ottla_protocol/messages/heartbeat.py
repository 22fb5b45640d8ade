"""Heartbeat, key 12: stay in a classic group, and learn of a rebalance.

Version 3 has static members (KIP-345), 4 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, field


class HeartbeatRequest(Message, key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """A member and the generation that it believes in."""

    group_id: String = field(default="")
    generation_id: Int32 = field(default=0)
    member_id: String = field(default="")
    group_instance_id: String | None = field("3+", default=None)


class HeartbeatResponse(Message, key=ApiKey.HEARTBEAT, versions="0-4", flexible="4+"):
    """An error code; REBALANCE_IN_PROGRESS asks the member to join again."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
