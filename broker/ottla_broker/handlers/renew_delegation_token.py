"""RenewDelegationToken (key 39), versions 0-2: give a delegation token more time (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.token_requests import principal_of, tokens_of
from ottla_broker.store.api import StoreError
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


async def handle(ctx: RequestContext, request: RenewDelegationTokenRequest) -> RenewDelegationTokenResponse:
    try:
        tokens = tokens_of(ctx)
        expires = await tokens.renew(principal_of(ctx), request.hmac, request.renew_period_ms)
    except KafkaError as error:
        return RenewDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    except StoreError:
        return RenewDelegationTokenResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, expiry_timestamp_ms=-1)
    return RenewDelegationTokenResponse(expiry_timestamp_ms=expires)
