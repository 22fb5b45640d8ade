"""CreateAcls (key 30), versions 0-3: refused as by a Kafka broker without an authorizer (``AclApis``)."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.create_acls import AclCreationResult, CreateAclsRequest, CreateAclsResponse


def handle(ctx: RequestContext, request: CreateAclsRequest) -> CreateAclsResponse:
    refused = AclCreationResult(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured."
    )
    return CreateAclsResponse(results=[refused] * len(request.creations))
