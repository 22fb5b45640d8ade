"""DeleteAcls: remove the access control lists that filters find (Kafka's ``AclApis``).

Version 1 has prefixed patterns (KIP-290); version 0 finds literal ones only. Without an authorizer it is refused, as in
Kafka.
"""

from __future__ import annotations

from ottla_broker.api_parts.acl_requests import NO_AUTHORIZER, acl_filter
from ottla_broker.controller.api import Outcome
from ottla_broker.requests.api import ALTER, CLUSTER, Api, MiB
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task, pause
from ottla_broker.requests.made_later import made_later
from ottla_protocol.acls import AclBinding, AclResource
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages import delete_acls as wire

API = Api(31, (0, 3), needs={CLUSTER: ALTER}, memory=MiB, coded=200)


async def handle(ctx: RequestContext, request: wire.DeleteAclsRequest) -> wire.DeleteAclsResponse:
    acls = ctx.services.acls
    if not ctx.authorize(AclResource.CLUSTER):
        return _refused(request, ErrorCode.CLUSTER_AUTHORIZATION_FAILED, None)
    if acls is None:
        return _refused(request, ErrorCode.SECURITY_DISABLED, f"{NO_AUTHORIZER}.")
    filters = [acl_filter(ctx, each) for each in request.filters]
    every = await in_task(acls.delete(filters))
    # A short request may delete all rules.
    await pause(sum(map(len, every)))
    return wire.DeleteAclsResponse(
        filter_results=[
            wire.DeleteAclsFilterResult(error_message=None, matching_acls=made_later(found, _matching))
            for found in every
        ]
    )


def _refused(
    request: wire.DeleteAclsRequest, code: ErrorCode, message: str | None
) -> wire.DeleteAclsResponse:
    refused = wire.DeleteAclsFilterResult(error_code=code, error_message=message)
    return wire.DeleteAclsResponse(filter_results=[refused] * len(request.filters))


def _matching(found: tuple[AclBinding, Outcome]) -> wire.DeleteAclsMatchingAcl:
    (pattern, entry), outcome = found
    return wire.DeleteAclsMatchingAcl(
        error_code=outcome.error,
        error_message=outcome.message,
        resource_type=pattern.resource,
        resource_name=pattern.name,
        pattern_type=pattern.pattern,
        principal=entry.principal,
        host=entry.host,
        operation=entry.operation,
        permission_type=entry.permission,
    )
