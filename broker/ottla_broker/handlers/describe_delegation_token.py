"""DescribeDelegationToken: tokens with their secrets (KIP-48, KIP-373).

Owners and renewers see their tokens.
"""

from __future__ import annotations

from typing import Final

from ottla_broker.api_parts.token_requests import principal_of, tokens_of
from ottla_broker.controller.delegation_tokens import size_of
from ottla_broker.requests.api import DESCRIBE, DESCRIPTIONS, MOST_ANSWER, Api
from ottla_broker.requests.context import RequestContext
from ottla_broker.requests.inline import pause
from ottla_broker.requests.made_later import made_later
from ottla_broker.store.token_nodes import TokenInfo
from ottla_protocol.acls import AclOperation, AclResource
from ottla_protocol.errors import ErrorCode, KafkaError
from ottla_protocol.messages import describe_delegation_token as wire

# For tokens of others; DESCRIBE_TOKENS on the owner is enough.
API = Api(41, (0, 3), needs={AclResource.DELEGATION_TOKEN: DESCRIBE}, answer=DESCRIPTIONS, coded=1000)

_WORK: Final = 4
"""The work of a look at a token, for which rules may be asked twice, besides its renewers."""


async def handle(
    ctx: RequestContext, request: wire.DescribeDelegationTokenRequest
) -> wire.DescribeDelegationTokenResponse:
    try:
        tokens = tokens_of(ctx)
    except KafkaError as error:
        return wire.DescribeDelegationTokenResponse(error_code=error.code)
    wanted = None
    if request.owners is not None:
        wanted = {f"{each.principal_type}:{each.principal_name}" for each in request.owners}
    asker = principal_of(ctx)

    def is_shown(token: TokenInfo) -> bool:
        if wanted is not None and wanted.isdisjoint((token.owner, *token.renewers)):
            return False
        return (
            token.belongs_to(asker)
            or ctx.shows(AclResource.DELEGATION_TOKEN, token.token_id)
            or ctx.may(AclOperation.DESCRIBE_TOKENS, AclResource.USER, token.owner)
        )

    shown = []
    size = 0
    for token in list(tokens.tokens()):
        if is_shown(token):
            shown.append(token)
            size += size_of(token)
            if size > MOST_ANSWER:
                # Tokens of Kafka may be larger than those that are made here.
                return wire.DescribeDelegationTokenResponse(error_code=ErrorCode.INVALID_REQUEST)
        await pause(_WORK + len(token.renewers))

    def described(token: TokenInfo) -> wire.DescribedDelegationToken:
        return _described(token, tokens.hmac_of(token.token_id))

    return wire.DescribeDelegationTokenResponse(tokens=made_later(shown, described))


def _described(token: TokenInfo, secret: bytes) -> wire.DescribedDelegationToken:
    owner_type, _, owner = token.owner.partition(":")
    requester_type, _, requester = token.requester.partition(":")
    renewers = [each.partition(":") for each in token.renewers]
    return wire.DescribedDelegationToken(
        principal_type=owner_type,
        principal_name=owner,
        token_requester_principal_type=requester_type,
        token_requester_principal_name=requester,
        issue_timestamp=token.issued_ms,
        expiry_timestamp=token.expires_ms,
        max_timestamp=token.max_ms,
        token_id=token.token_id,
        hmac=secret,
        renewers=[
            wire.DescribedDelegationTokenRenewer(principal_type=kind, principal_name=name)
            for kind, _, name in renewers
        ],
    )
