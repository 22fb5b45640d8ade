"""CreateAcls, key 30: add ACLs.

Pattern types come with version 1 (KIP-290). Version 2 is flexible, 3 adds the resource type USER.
"""

from __future__ import annotations

from ..api_keys import ApiKey
from ..schema import Int8, Int16, Int32, Message, String, Struct, field


class AclCreation(Struct):
    resource_type: Int8 = field(default=0)
    resource_name: String = field(default="")
    resource_pattern_type: Int8 = field("1+", default=3)
    principal: String = field(default="")
    host: String = field(default="")
    operation: Int8 = field(default=0)
    permission_type: Int8 = field(default=0)


class CreateAclsRequest(Message, key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    creations: list[AclCreation] = field(default_factory=list)


class AclCreationResult(Struct):
    """The result of one creation."""

    error_code: Int16 = field(default=0)
    error_message: String | None = field(default="")


class CreateAclsResponse(Message, key=ApiKey.CREATE_ACLS, versions="0-3", flexible="2+"):
    """One result per creation, in order."""

    throttle_time_ms: Int32 = field(default=0)
    results: list[AclCreationResult] = field(default_factory=list)
