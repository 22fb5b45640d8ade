"""ExpireDelegationToken (key 40), versions 0-2: give a delegation token less time, or none (KIP-48).

For the token's owner and renewers.
"""

from __future__ import annotations

from ottla_broker.handlers.context import RequestContext
from ottla_broker.handlers.token_requests import principal_of, tokens_of
from ottla_broker.store.api import StoreError
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


async def handle(ctx: RequestContext, request: ExpireDelegationTokenRequest) -> ExpireDelegationTokenResponse:
    try:
        tokens = tokens_of(ctx)
        expires = await tokens.expire(principal_of(ctx), request.hmac, request.expiry_time_period_ms)
    except KafkaError as error:
        return ExpireDelegationTokenResponse(error_code=error.code, expiry_timestamp_ms=-1)
    except StoreError:
        return ExpireDelegationTokenResponse(error_code=ErrorCode.KAFKA_STORAGE_ERROR, expiry_timestamp_ms=-1)
    return ExpireDelegationTokenResponse(expiry_timestamp_ms=expires)
