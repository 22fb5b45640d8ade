"""RenewDelegationToken: give a delegation token more time (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.api_parts.token_requests import changed
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)

# The token's owner and renewers decide.
API = Api(39, (0, 2))


async def handle(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    code, expires = await changed(
        ctx, lambda tokens, principal: tokens.renew(principal, request.hmac, request.renew_period_ms)
    )
    return RenewDelegationTokenResponse(error_code=code, expiry_timestamp_ms=expires)
