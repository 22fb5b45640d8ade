"""DescribeAcls (key 29), versions 0-3: the access control lists that a filter finds (Kafka's ``AclApis``).

Version 1 has prefixed patterns (KIP-290); version 0 finds literal ones only. Without an authorizer it is refused, as in
Kafka.
"""

from __future__ import annotations

from ottla_broker.handlers.acl_requests import NO_AUTHORIZER, acl_filter
from ottla_broker.handlers.context import RequestContext
from ottla_protocol.acls import ResourcePattern
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_acls as wire


def handle(ctx: RequestContext, request: wire.DescribeAclsRequest) -> wire.DescribeAclsResponse:
    acls = ctx.services.acls
    if acls is None:
        return wire.DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER} on the broker"
        )
    resources: dict[ResourcePattern, wire.DescribeAclsResource] = {}
    for pattern, entry in acls.find(acl_filter(ctx, request)):
        resource = resources.get(pattern)
        if resource is None:
            resource = resources[pattern] = wire.DescribeAclsResource(
                resource_type=pattern.resource, resource_name=pattern.name, pattern_type=pattern.pattern
            )
        resource.acls.append(
            wire.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
        )
    return wire.DescribeAclsResponse(resources=list(resources.values()))
