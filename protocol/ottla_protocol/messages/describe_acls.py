"""DescribeAcls, key 29: the ACLs that match a filter.

Pattern types come with version 1 (KIP-290). Version 2 is flexible, 3 adds the resource type USER.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class DescribeAclsRequest(Message, key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """A filter. Null strings match any; numbers are those of Kafka's ``ResourceType``, ``AclOperation`` and so on."""

    resource_type_filter: Int8 = field(default=0)
    resource_name_filter: String | None = field(default="")
    pattern_type_filter: Int8 = field("1+", default=3)
    principal_filter: String | None = field(default="")
    host_filter: String | None = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class AclDescription(Struct):
    principal: String = field(default="")
    host: String = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class DescribeAclsResource(Struct):
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    pattern_type: Int8 = field("1+", default=3)
    acls: list[AclDescription] = field(default_factory=list)


class DescribeAclsResponse(Message, key=ApiKey.DESCRIBE_ACLS, versions="0-3", flexible="2+"):
    """The matching ACLs, or an error."""

    throttle_time_ms: Int32 = field(default=0)
    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")
    resources: list[DescribeAclsResource] = field(default_factory=list)
