"""DeleteGroups: its request and its response."""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int16, Int32, Message, String, Struct, field


class DeleteGroupsRequest(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """Part of DeleteGroups."""

    groups_names: list[String] = field(default_factory=list)


class DeletableGroupResult(Struct):
    """Part of DeleteGroups."""

    group_id: String = field(default="")
    error_code: Int16 = field(default=0)


class DeleteGroupsResponse(Message, key=ApiKey.DELETE_GROUPS, versions="0-2", flexible="2+"):
    """Part of DeleteGroups."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[DeletableGroupResult] = field(default_factory=list)
