"""DescribeUserScramCredentials (key 50), version 0: no user has any (KIP-554).

Null and an empty list ask for all users. Errors have Kafka's words (``ZkAdminManager.describeUserScramCredentials``).
"""

from __future__ import annotations

from collections import Counter

from ottla_broker.handlers.context import RequestContext
from ottla_protocol.errors import ErrorCode
from ottla_protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


def handle(
    ctx: RequestContext, request: DescribeUserScramCredentialsRequest
) -> DescribeUserScramCredentialsResponse:
    asked = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None, results=[_result(name, count) for name, count in asked.items()]
    )


def _result(name: str, count: int) -> DescribeUserScramCredentialsResult:
    code = ErrorCode.RESOURCE_NOT_FOUND
    if not name:
        message = "Username must not be empty"
    elif count > 1:
        code = ErrorCode.DUPLICATE_RESOURCE
        message = f"Cannot describe SCRAM credentials for the same user twice in a single request: {name}"
    else:
        message = f"Attempt to describe a user credential that does not exist: {name}"
    return DescribeUserScramCredentialsResult(user=name, error_code=code, error_message=message)
