"""FindCoordinator, key 10: which broker coordinates a group or a transactional id.

Once GroupCoordinator, and ConsumerMetadata before that. Version 1 finds transaction coordinators too, 3 is
flexible, 4 asks for several at once (KIP-699), 5 has a new error for transactions (KIP-890), 6 finds share
groups (KIP-932).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class FindCoordinatorRequest(Message, key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """One key up to version 3, several from 4 on. Key types: 0 group, 1 transaction, 2 share group."""

    key: String = field("0-3", default="")
    key_type: Int8 = field("1+", default=0)
    coordinator_keys: list[String] = field("4+", default_factory=list)


class Coordinator(Struct):
    key: String = field("4+", default="")
    node_id: Int32 = field("4+", default=0)
    host: String = field("4+", default="")
    port: Int32 = field("4+", default=0)
    error_code: Int16 = field("4+", default=0)
    error_message: String | None = field("4+", default="", ignorable=True)


class FindCoordinatorResponse(Message, key=ApiKey.FIND_COORDINATOR, versions="0-6", flexible="3+"):
    """One coordinator up to version 3, several from 4 on; node -1 with an error."""

    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field("0-3", default=0)
    error_message: String | None = field("1-3", default="", ignorable=True)
    node_id: Int32 = field("0-3", default=0)
    host: String = field("0-3", default="")
    port: Int32 = field("0-3", default=0)
    coordinators: list[Coordinator] = field("4+", default_factory=list)
