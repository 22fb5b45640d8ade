"""RenewDelegationToken (key 39), versions 0-2: give a delegation token more time (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.token_requests import changed
from ottla_protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    code, expires = await changed(
        ctx, lambda tokens, principal: tokens.renew(principal, request.hmac, request.renew_period_ms)
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires)
