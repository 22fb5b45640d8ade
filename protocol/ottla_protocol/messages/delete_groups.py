"""DeleteGroups, key 42: drop empty groups with their offsets.

Version 2 is flexible.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class DeleteGroupsRequest(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    groups_names: list[String] = field(default_factory=list)


class DeletableGroupResult(Struct):
    group_id: String = field(default="")
    error_code: Int16 = field(default=0)


class DeleteGroupsResponse(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult] = field(default_factory=list)
