"""ExpireDelegationToken (key 40), versions 0-2: give a delegation token less time, or none (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.token_requests import changed
from ottla_protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(ctx: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    code, expires = await changed(
        ctx, lambda tokens, principal: tokens.expire(principal, request.hmac, request.expiry_time_period_ms)
    )
    return ExpireDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires)
