"""DeleteAcls, key 31: remove the ACLs that match filters.

Pattern types come with version 1 (KIP-290). Version 2 is flexible, 3 adds the resource type USER.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class DeleteAclsFilter(Struct):
    resource_type_filter: Int8 = field(default=0)
    resource_name_filter: String | None = field(default="")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field(default="")
    host_filter: String | None = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class DeleteAclsRequest(Message, key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    filters: list[DeleteAclsFilter] = field(default_factory=list)


class DeleteAclsMatchingAcl(Struct):
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    pattern_type: Int8 = field("1+", default=3)
    principal: String = field(default="")
    host: String = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class DeleteAclsFilterResult(Struct):
    """The ACLs that one filter removed."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    matching_acls: list[DeleteAclsMatchingAcl] = field(default_factory=list)


class DeleteAclsResponse(Message, key=ApiKey.DELETE_ACLS, versions="0-3", flexible="2+"):
    """One result per filter, in order."""

    throttle_time_ms: Int32 = field(default=0)
    filter_results: list[DeleteAclsFilterResult] = field(default_factory=list)
