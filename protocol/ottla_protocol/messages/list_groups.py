"""ListGroups, key 16: the groups that this broker coordinates.

Version 3 is flexible, 4 filters by state (KIP-518), 5 by type (KIP-848).
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class ListGroupsRequest(Message, key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    """The states and types; an empty list means all."""

    states_filter: list[String] = field("4+", default_factory=list)
    types_filter: list[String] = field("5+", default_factory=list)


class ListedGroup(Struct):
    group_id: String = field(default="")
    protocol_type: String = field(default="")
    group_state: String = field("4+", default="", ignorable=True)
    group_type: String = field("5+", default="", ignorable=True)


class ListGroupsResponse(Message, key=ApiKey.LIST_GROUPS, versions="0-5", flexible="3+"):
    throttle_time_ms: Int32 = field("1+", default=0, ignorable=True)
    error_code: Int16 = field(default=0)
    groups: list[ListedGroup] = field(default_factory=list)
