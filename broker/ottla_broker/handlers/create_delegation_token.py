"""CreateDelegationToken: make a token that logs in as its owner (KIP-48, KIP-373)."""

from __future__ import annotations

from ottla_broker.api_parts.token_requests import not_stored, principal_of, tokens_of
from ottla_broker.requests.api import Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import in_task
from ottla_broker.store.api import StoreError
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

# For another user's token; everyone may have tokens of their own.
API = Api(38, (0, 3), needs={AclResource.USER: AclOperation.CREATE_TOKENS})

_USER = "User"


async def handle(ctx: RequestContext, request: CreateDelegationTokenRequest) -> CreateDelegationTokenResponse:
    requester = principal_of(ctx)
    owner = requester
    if request.owner_principal_name:
        owner = f"{request.owner_principal_type or _USER}:{request.owner_principal_name}"
    owner_type, _, owner_name = owner.partition(":")
    requester_type, _, requester_name = requester.partition(":")
    response = CreateDelegationTokenResponse(
        principal_type=owner_type,
        principal_name=owner_name,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester_name,
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
    try:
        tokens = tokens_of(ctx)
        if owner != requester and not ctx.authorize(AclResource.USER, owner):
            raise KafkaError(ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED)
        types = [owner_type, *(each.principal_type for each in request.renewers)]
        if any(kind != _USER for kind in types) or not all(each.principal_name for each in request.renewers):
            raise KafkaError(ErrorCode.INVALID_PRINCIPAL_TYPE)
        renewers = dict.fromkeys(f"{each.principal_type}:{each.principal_name}" for each in request.renewers)
        token = await in_task(tokens.create(owner, requester, list(renewers), request.max_lifetime_ms))
    except KafkaError as error:
        response.error_code = error.code
        return response
    except StoreError as error:
        response.error_code = not_stored(error)
        return response
    response.issue_timestamp_ms = token.issued_ms
    response.expiry_timestamp_ms = token.expires_ms
    response.max_timestamp_ms = token.max_ms
    response.token_id = token.token_id
    response.hmac = tokens.hmac_of(token.token_id)
    return response
