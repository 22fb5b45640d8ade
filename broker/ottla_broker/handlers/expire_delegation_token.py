"""ExpireDelegationToken: give a delegation token less time, or none (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.api_parts.token_requests import changed
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)

# The token's owner and renewers decide.
API = Api(40, (0, 2))


async def handle(ctx: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    code, expires = await changed(
        ctx, lambda tokens, principal: tokens.expire(principal, request.hmac, request.expiry_time_period_ms)
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires)
