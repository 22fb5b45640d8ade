"""DeleteAcls (key 31), versions 0-3: refused as by a Kafka broker without an authorizer (``AclApis``)."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.delete_acls import DeleteAclsFilterResult, DeleteAclsRequest, DeleteAclsResponse


def handle(ctx: RequestContext, request: DeleteAclsRequest) -> DeleteAclsResponse:
    refused = DeleteAclsFilterResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return DeleteAclsResponse(filter_results=[refused] * len(request.filters))
