"""DescribeAcls: the access control lists that a filter finds (Kafka's ``AclApis``).

Version 1 has prefixed patterns (KIP-290); version 0 finds literal ones only. Without an authorizer it is refused, as in
Kafka.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final

from ottla_broker.api_parts.acl_requests import NO_AUTHORIZER, acl_filter
from ottla_broker.requests.api import CLUSTER, DESCRIBE, DESCRIPTIONS, MOST_ANSWER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.made_later import made_later
from ottla_protocol.acls import AclEntry, ResourcePattern
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import describe_acls as wire

API = Api(29, (0, 3), needs={CLUSTER: DESCRIBE}, gate=CLUSTER, answer=DESCRIPTIONS, coded=200)

_SIZE: Final = 16
"""How many bytes a rule or a resource has in the response, besides its texts."""

Found = tuple[ResourcePattern, Collection[AclEntry]]


async def handle(ctx: RequestContext, request: wire.DescribeAclsRequest) -> wire.DescribeAclsResponse:
    acls = ctx.services.acls
    if acls is None:
        return wire.DescribeAclsResponse(
            error_code=ErrorCode.SECURITY_DISABLED, error_message=f"{NO_AUTHORIZER} on the broker"
        )
    wanted = acl_filter(ctx, request)
    resources: list[Found] = []
    size = 0
    for pattern, every in list(acls.rules):
        await pause(1)
        if not wanted.finds_pattern(pattern):
            continue
        entries = [each for each in every if wanted.finds_entry(each)]
        if not entries:
            continue
        # All but a filter's few rules are kept as the broker has them.
        resources.append((pattern, every if len(entries) == len(every) else entries))
        size += _SIZE + len(pattern.name)
        size += sum(_SIZE + len(each.principal) + len(each.host) for each in entries)
        await pause(len(every) // 2)
        if size > MOST_ANSWER:
            return wire.DescribeAclsResponse(
                error_code=ErrorCode.INVALID_REQUEST,
                error_message="The ACLs don't fit into a response; ask for fewer by a filter.",
            )
    return wire.DescribeAclsResponse(resources=made_later(resources, _resource))


def _resource(found: Found) -> wire.DescribeAclsResource:
    pattern, entries = found
    return wire.DescribeAclsResource(
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        acls=[
            wire.AclDescription(
                principal=entry.principal,
                host=entry.host,
                operation=entry.operation,
                permission_type=entry.permission,
            )
            for entry in entries
        ],
    )
