"""DescribeAcls (key 29), versions 0-3: refused as by a Kafka broker without an authorizer (``AclApis``)."""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_acls import DescribeAclsRequest, DescribeAclsResponse


def handle(ctx: RequestContext, request: DescribeAclsRequest) -> DescribeAclsResponse:
    return DescribeAclsResponse(
        error_code=ErrorCode.SECURITY_DISABLED, error_message="No Authorizer is configured on the broker"
    )
